"""`StreamWriteBuilder`: the settings of a writer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

from pypaimon.streaming.consumers.consumer_names import check_consumer_id
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.filtering.partition_spec import PartitionSpec
from pypaimon.streaming.html_tables import html_dataclass
from pypaimon.streaming.maintenance.commit_maintenance import When, is_automatic_maintenance
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.time_zone import TIME_ZONE, option_zone
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.arguments import a_table, at_least
from pypaimon.streaming.paimon.handles import WritableTable
from pypaimon.streaming.writing.pending_rows import WriterSettings
from pypaimon.streaming.writing.stream_writer import BlockingStreamWriter, StreamWriter


def stream_write_builder(table: WritableTable) -> StreamWriteBuilder:
    """A builder of writers of a table. Each of their commits is made exactly once.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` returns it.
    """
    return StreamWriteBuilder(table)


class StreamWriteBuilder:
    """Settings of a writer. Each call returns the builder.

    Args:
        table: pypaimon's table.
    """

    def __init__(self, table: WritableTable) -> None:
        self._table = PaimonTable(a_table("stream_write_builder: table", table))
        prefix, unique = option_keys.COMMIT_USER_PREFIX.of(self._table.options), str(uuid4())
        self._settings = WriterSettings(unique if prefix is None else f"{prefix}_{unique}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._table.name})"

    def _repr_html_(self) -> str:
        return html_dataclass(repr(self), self._settings)

    def with_commit_user(self, user: str) -> StreamWriteBuilder:
        """Set the commit user of the writer.

        A program that continues after a restart must use the same name each time, and one that no other program uses:
        the table records by this name what was committed. Without this call the writer gets a new name, with the
        table's `commit.user-prefix`.

        A consumer of that name keeps the snapshots from the user's newest commit on. If the program chose the name,
        delete the consumer (`paimon-stream consumers`) when nobody writes under it any more. Otherwise it is deleted
        when the writer is closed, unless the writer ended with an error.

        Raises:
            StreamConfigError: The name cannot be the name of a file.
        """
        check_consumer_id(user)
        self._settings = replace(self._settings, user=user, is_named=True)
        return self

    def with_overwrite(self, partition: Mapping[str, Any] | None = None) -> StreamWriteBuilder:
        """Have each commit replace existing rows.

        Args:
            partition: Values of partition columns, all or some. Every partition with these values is replaced, and
                the commit refuses rows of other partitions. A value is of the column's type, None for null, or a text
                that is read as Java reads names of partitions: `{"day": "2026-11-21"}`. The name of the default
                partition means null. None: the partitions that rows are written to, or the whole table if it is not
                partitioned. As in Java and pypaimon, the option `dynamic-partition-overwrite` = `false` replaces the
                whole table in either case.

        Raises:
            StreamConfigError: `partition` is empty, names a column that is not a partition column, or a value does not
                fit its column.
        """
        overwrite = True if partition is None else PartitionSpec.of(self._table.schema, partition, "with_overwrite")
        self._settings = replace(self._settings, overwrite=overwrite)
        return self

    def with_row_kind_column(self, name: str) -> StreamWriteBuilder:
        """Set the column of given rows that holds row kinds, `+I -U +U -D`. Default: `_row_kind`, if it is given."""
        self._settings = replace(self._settings, kind_column=name)
        return self

    def with_memory_limit(self, limit_bytes: int) -> StreamWriteBuilder:
        """Set how many bytes of rows may be held in memory before they are written to files.

        Default: the table's `write-buffer-size`.

        Raises:
            StreamConfigError: It is not a positive number.
        """
        self._settings = replace(self._settings, memory_limit=at_least(1, "with_memory_limit", limit_bytes))
        return self

    def with_maintenance(self, when: When) -> StreamWriteBuilder:
        """Set whether commits are followed by maintenance, as those of Java's writers are.

        It does what `maintain` does, by the table's options, but not for a table with `write-only`. It runs on another
        thread, about once for ten commits, and an error is logged and not raised: see `StreamWriter.maintenance`.
        Leaving the writer's context waits until it has ended.

        Args:
            when: `"auto"`: when something is due. `"off"`, the default: never, because snapshots that expire are lost
                to readers whose position is not in a consumer file of the table.

        Raises:
            StreamConfigError: It is neither, or an option of the table cannot be parsed.
        """
        is_automatic = is_automatic_maintenance("with_maintenance", when)
        self._settings = replace(self._settings, maintains=is_automatic)
        return self

    def with_time_zone(self, name: str) -> StreamWriteBuilder:
        """Set the time zone of the table's readers and writers.

        Default: the table's option `time-zone`, or else the zone of the process. Java uses the zone of its JVM. It
        reads a TIMESTAMP WITH LOCAL TIME ZONE in an ORC file correctly only in the zone of its writer, unless the table
        has `orc.timestamp-ltz.legacy.type` = `false`. This library writes such files in UTC if the zone is not set. The
        zone also decides the names of partitions by such columns (`partition.legacy-name` = `false`).

        Args:
            name: Such as `"Asia/Shanghai"`, `"UTC"` or `"+08:00"`.

        Raises:
            StreamConfigError: The zone is unknown.
        """
        if not isinstance(name, str):
            raise StreamConfigError(f"with_time_zone: expected the name of a time zone, got {name!r}.")
        option_zone(name)
        self._table = self._table.copy({TIME_ZONE: name})
        if isinstance(self._settings.overwrite, PartitionSpec):
            # The text of a timestamp means another partition in another zone.
            return self.with_overwrite(self._settings.overwrite.given)
        return self

    def open(self) -> StreamWriter:
        """A writer for `async with`. The table is read when it is entered."""
        return StreamWriter(self._table, self._settings)

    def open_sync(self) -> BlockingStreamWriter:
        """A writer for `with`."""
        return BlockingStreamWriter(self._table, self._settings)
