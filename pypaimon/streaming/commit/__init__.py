"""Commits: files that writers have written become one snapshot, exactly once. Read `idempotent_commit` first."""
