"""Compaction: small files become large ones, and sorted runs fewer, by commits that do not change any row."""
