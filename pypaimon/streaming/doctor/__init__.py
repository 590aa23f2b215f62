"""What is the matter with a table, seen by a stream: one look at its metadata, and checks over what was seen."""

from pypaimon.streaming.lazy_imports import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
