"""Making `new_stream_read_builder()` of pypaimon's table classes return our builder."""

from __future__ import annotations

from typing import Any

from pypaimon.streaming.builder import StreamReadBuilder
from pypaimon.streaming.internals import table_classes


def install() -> None:
    """Replace `new_stream_read_builder` of every table class. Idempotent; `import pypaimon.streaming` calls it.

    Each class overrides the method, so changing the base class alone would do nothing.
    """
    for table_class in table_classes():
        setattr(table_class, "new_stream_read_builder", _new_stream_read_builder)  # noqa: B010 - typed as any class


def _new_stream_read_builder(table: Any) -> StreamReadBuilder:
    """A builder of streams of this table; see `pypaimon.streaming.StreamReadBuilder`."""
    return StreamReadBuilder(table)
