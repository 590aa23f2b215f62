"""The files of a table's directory: snapshots, manifests, schemas, tags; decoded in bulk and cached."""
