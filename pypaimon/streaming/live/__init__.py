"""Live tables: the rows of a table, kept up to date in memory or on disk, read by key, as Arrow or with SQL."""
