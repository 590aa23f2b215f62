"""A whole database as one stream: its tables, those that come, and those that go."""
