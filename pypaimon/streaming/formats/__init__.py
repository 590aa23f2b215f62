"""File formats: container files of records, and data files as record batches."""
