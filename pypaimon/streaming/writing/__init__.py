"""Writing tables: rows into files, files into snapshots."""
