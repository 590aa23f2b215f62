"""A whole database as one stream: its tables, those that come, and those that go."""

from pypaimon.streaming.lazy_imports import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
