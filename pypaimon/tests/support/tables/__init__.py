"""Tables for tests: written by pypaimon, by this library, or file by file."""
