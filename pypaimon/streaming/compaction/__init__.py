"""Compaction: small files into large ones, and sorted runs into fewer, as commits that change no row."""
