"""Making `new_stream_read_builder()` of pypaimon's table classes return our builder.

Imports nothing that pypaimon has not imported already, so that `import pypaimon.streaming` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pypaimon.streaming.builder.builder import StreamReadBuilder


def install() -> None:
    """Replace `new_stream_read_builder` of every table class. Idempotent; `import pypaimon.streaming` calls it.

    Each class overrides the method, so changing the base class alone would do nothing.
    """
    from pypaimon.table.file_store_table import FileStoreTable
    from pypaimon.table.format.format_table import FormatTable
    from pypaimon.table.iceberg.iceberg_table import IcebergTable
    from pypaimon.table.object.object_table import ObjectTable
    from pypaimon.table.system.system_table import SystemTable
    from pypaimon.table.table import Table

    for table_class in (Table, FileStoreTable, FormatTable, IcebergTable, ObjectTable, SystemTable):
        table_class.new_stream_read_builder = _new_stream_read_builder


def _new_stream_read_builder(table: Any) -> StreamReadBuilder:
    """A builder of streams of this table; see `pypaimon.streaming.StreamReadBuilder`."""
    from pypaimon.streaming.builder.builder import StreamReadBuilder

    return StreamReadBuilder(table)
