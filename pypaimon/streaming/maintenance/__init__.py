"""Keep a table small: expire snapshots, changelogs, tags and consumers, and delete the files that nothing needs."""

from pypaimon.streaming.lazy_imports import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
