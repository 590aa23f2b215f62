"""What is in a table's directory: snapshots, manifests, schemas, tags; decoded in bulk, cached."""
