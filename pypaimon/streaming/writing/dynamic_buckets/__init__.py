"""Tables with dynamic buckets: which bucket each key lies in, and the index files that say so."""
