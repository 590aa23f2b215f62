"""Keep a table small: expire partitions, snapshots, changelogs, tags, consumers; delete files that nothing needs."""

from pypaimon.streaming.lazy_imports import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
