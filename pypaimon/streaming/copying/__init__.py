"""Copies of a table: `replicate` and `Replication` into a target, `copy_stream` into another Paimon table."""
