"""Groups of readers that share the slots of a table, and agree on who reads which over the table's store alone."""
