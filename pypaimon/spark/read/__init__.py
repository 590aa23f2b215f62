"""The source: streams and batches."""
