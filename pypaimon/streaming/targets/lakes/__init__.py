"""Targets in lakes: Delta tables, Iceberg tables, Parquet files."""
