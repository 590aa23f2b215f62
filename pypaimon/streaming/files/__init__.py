"""Data and changelog files as record batches in the schema that is read; deletion vectors; data evolution."""
