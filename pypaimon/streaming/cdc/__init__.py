"""Change records of other systems as rows with kinds: one module for each format, and what they have in common."""
