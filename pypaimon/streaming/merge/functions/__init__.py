"""What aggregation makes of the values of a field."""
