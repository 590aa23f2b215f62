"""File indexes of new data files."""
