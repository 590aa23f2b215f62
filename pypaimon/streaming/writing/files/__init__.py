"""Rows of one bucket into new files, as Java writes them."""
