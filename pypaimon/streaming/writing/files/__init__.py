"""Writes the rows of one bucket into new files, as Java does."""
