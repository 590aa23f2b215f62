"""Sessions, queries and applications of Spark."""
