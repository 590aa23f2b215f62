"""Targets in databases: DuckDB, SQLite, PostgreSQL."""
