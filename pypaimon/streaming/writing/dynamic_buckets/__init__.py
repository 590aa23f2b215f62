"""Tables with dynamic buckets: the bucket of each key, and the index files that record it."""
