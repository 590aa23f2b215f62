"""Plain Python models of what tables, merges and filters must return."""
