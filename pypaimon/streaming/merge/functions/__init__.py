"""The aggregate functions of fields."""
