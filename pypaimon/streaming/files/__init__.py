"""One data or changelog file as record batches in the schema that is read."""
