"""What is the matter with a table, seen by a stream: one look at its metadata, and checks over what was seen."""
