"""`StreamWriteBuilder`: settings of one writer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

from pypaimon.streaming.consumers.consumer_names import check_consumer_id
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.filtering.partition_spec import PartitionSpec
from pypaimon.streaming.model.time_zone import TIME_ZONE, option_zone
from pypaimon.streaming.options.arguments import a_table, at_least
from pypaimon.streaming.writing.stream_writer import BlockingStreamWriter, StreamWriter
from pypaimon.streaming.writing.writer_settings import WriterSettings


def stream_write_builder(table: Any) -> StreamWriteBuilder:
    """A builder of writers of a table, which write it commit by commit, each of them once.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` gives it.
    """
    return StreamWriteBuilder(table)


class StreamWriteBuilder:
    """Settings of a writer. Each call returns the builder.

    Args:
        table: pypaimon's table.
    """

    def __init__(self, table: Any) -> None:
        self._table = a_table("stream_write_builder: table", table)
        self._settings = WriterSettings(_new_user(table))

    def with_commit_user(self, user: str) -> StreamWriteBuilder:
        """Under whom the writer commits.

        A program that is to go on after a restart names it, the same each time and no other program's: by it the table
        tells what was committed. Without this call it is a new one each time, `commit.user-prefix` in front.

        The table keeps the snapshots from the user's newest commit on, by a consumer of that name. Under a name that
        the program chose, delete it (`paimon-stream consumers`) when nobody writes under it any more; otherwise it goes
        when the writer is closed, but for one that ends with an error.

        Raises:
            StreamConfigError: It cannot be the name of a file.
        """
        check_consumer_id(user)
        self._settings = replace(self._settings, user=user, is_named=True)
        return self

    def with_overwrite(self, partition: Mapping[str, Any] | None = None) -> StreamWriteBuilder:
        """Have each commit replace what is there.

        Args:
            partition: Values of partition columns, all or some: every partition that has them is replaced, and rows of
                others are refused by the commit. A value is one of the column's type, None for null, or a text, which
                is read as Java reads names of partitions: `{"day": "2026-11-21"}`; the name of the default partition is
                null. None: in a partitioned table the partitions that the rows lie in, else the whole table; as Java's
                and pypaimon's, the option `dynamic-partition-overwrite` (`true` unless set) decides: with `false` it is
                always the whole table.

        Raises:
            StreamConfigError: `partition` is empty, names no partition column, or a value does not fit its column.
        """
        schema = self._table.table_schema
        overwrite = True if partition is None else PartitionSpec.of(schema, partition, "with_overwrite")
        self._settings = replace(self._settings, overwrite=overwrite)
        return self

    def with_row_kind_column(self, name: str) -> StreamWriteBuilder:
        """The column of what is written that holds row kinds, `+I -U +U -D`. Default: `_row_kind`, if there is one."""
        self._settings = replace(self._settings, kind_column=name)
        return self

    def with_memory_limit(self, bytes_held: int) -> StreamWriteBuilder:
        """Bytes of rows that wait in memory at most; beyond them they go into files. Default: `write-buffer-size`.

        Raises:
            StreamConfigError: It is no positive number.
        """
        self._settings = replace(self._settings, memory_limit=at_least(1, "with_memory_limit", bytes_held))
        return self

    def with_time_zone(self, name: str) -> StreamWriteBuilder:
        """The time zone of the table's readers and writers; default: its option `time-zone`, else that of the process.

        Java has the zone of its JVM, and reads a TIMESTAMP WITH LOCAL TIME ZONE in an ORC file right only in the zone
        of its writer, unless the table says `orc.timestamp-ltz.legacy.type` = `false`. Here such a file is of UTC if no
        zone is named. The zone also names partitions of such columns (`partition.legacy-name` = `false`).

        Args:
            name: Such as `"Asia/Shanghai"`, `"UTC"` or `"+08:00"`.

        Raises:
            StreamConfigError: There is no such zone.
        """
        if not isinstance(name, str):
            raise StreamConfigError(f"with_time_zone: expected the name of a time zone, got {name!r}.")
        option_zone(name)
        self._table = self._table.copy_without_time_travel({TIME_ZONE: name})
        if isinstance(self._settings.overwrite, PartitionSpec):
            # Texts of timestamps name other partitions in another zone.
            return self.with_overwrite(self._settings.overwrite.given)
        return self

    def open(self) -> StreamWriter:
        """A writer for `async with`. The table is asked for when it is entered."""
        return StreamWriter(self._table, self._settings)

    def open_sync(self) -> BlockingStreamWriter:
        """A writer for `with`."""
        return BlockingStreamWriter(self._table, self._settings)


def _new_user(table: Any) -> str:
    prefix = table.options.options.to_map().get("commit.user-prefix")
    return str(uuid4()) if prefix is None else f"{prefix}_{uuid4()}"
