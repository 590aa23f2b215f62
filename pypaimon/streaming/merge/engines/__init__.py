"""The merge engines: `engine` holds what they share and the simple ones."""
