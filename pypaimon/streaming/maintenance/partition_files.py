"""`PartitionFiles`: a partition of a table with what its manifests say about its files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.filtering.partition_texts import partition_text
from pypaimon.streaming.formats.binary_row import decode
from pypaimon.streaming.formats.binary_row_encoding import plain_row
from pypaimon.streaming.maintenance.references import missing_file_error
from pypaimon.streaming.maintenance.roots import is_held
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.file_paths import FilePaths
from pypaimon.streaming.metadata.manifest_tables import ENTRY_SCHEMA
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.time_zone import TimeZone
from pypaimon.streaming.options import option_keys

_COLUMNS = ("kind", "partition", "file_size", "row_count", "creation_time")
_SCHEMA = pa.schema([ENTRY_SCHEMA.field(name) for name in _COLUMNS])
_SUMS = [("files", "sum"), ("rows", "sum"), ("size", "sum"), ("creation_time", "max")]
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

PartitionValues = Mapping[str, str | None]
"""Texts of a partition's values by column; None for null. `drop_partitions` takes them."""


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """A partition that has files.

    Attributes:
        values: Its values.
        files: Number of its data files.
        rows: Rows of these files, without merging them.
        size: Their bytes.
        last_write: When the newest of them was written, compactions included; None: its manifests do not say it.
        stored: Its serialised rows: one, or two if Java and pypaimon, which differ in some types, have both written it.
        null_text: The text of null (`partition.default-name`).
    """

    values: PartitionValues
    files: int
    rows: int
    size: int
    last_write: datetime | None
    stored: tuple[bytes, ...] = field(repr=False)
    null_text: str = field(default=option_keys.PARTITION_DEFAULT_NAME.default, repr=False)

    @property
    def last_write_millis(self) -> int | None:
        """`last_write` in milliseconds since 1970."""
        return None if self.last_write is None else (self.last_write - _EPOCH) // timedelta(milliseconds=1)

    @property
    def text(self) -> str:
        """Its values as `day=2026-11-21/hour=8`."""
        return partition_text(self.values, self.null_text)


def partitions_at(table: PaimonTable, directory: TableDirectory, snapshot: Snapshot) -> list[PartitionFiles]:
    """The partitions of a snapshot, in the order of Java's texts of their values, joined by commas.

    Raises:
        CorruptTableError: A manifest is damaged or missing.
        MaintenanceConflictError: The snapshot has expired meanwhile (retriable).
    """
    try:
        manifests = pa.concat_tables(directory.manifests.manifest_lists(snapshot.state_lists))
        entries = directory.manifests.entries(manifests, _SCHEMA)
    except FileNotFoundError as error:
        expired = None if is_held(directory, snapshot) else snapshot
        raise missing_file_error(table.name, error, f"snapshot {snapshot.id}", expired) from error
    fields = table.partition_fields
    found: dict[bytes, list[dict[str, int | None]]] = {}
    stored: dict[bytes, list[bytes]] = {}
    for each in _sums(entries).to_pylist():
        row = each.pop("partition")
        found.setdefault(plain_row(row, fields), []).append(each)
        stored.setdefault(plain_row(row, fields), []).append(row)
    texts = FilePaths(table.path, tuple(fields), legacy_names=True)
    partitions = [(_order(texts, rows[0]), _made(table, found[plain], rows)) for plain, rows in stored.items()]
    return [each for _, each in sorted(partitions, key=lambda pair: pair[0]) if each.files > 0]


def values_of(table: PaimonTable, row: bytes) -> PartitionValues:
    """The texts of the values of a serialised partition; texts of dates and times are those of SQL."""
    texts = FilePaths(table.path, tuple(table.partition_fields), legacy_names=False, zone=table.zone).values(row)
    values = zip(texts, decode(row, table.partition_fields), strict=True)
    return {name: value if value is None or isinstance(value, str) else texts[name] for name, value in values}


def written_at(creation_time: int, zone: TimeZone) -> datetime:
    """The moment of a file's creation time, which is milliseconds of the local clock of its writer."""
    return zone.local(_EPOCH + timedelta(milliseconds=zone.millis(creation_time)))


def _sums(entries: pa.Table) -> pa.Table:
    sign = pc.if_else(pc.equal(entries["kind"], EntryKind.ADD), 1, -1)
    counted = pa.table(
        {
            "partition": entries["partition"],
            "files": sign,
            "rows": pc.multiply(entries["row_count"], sign),
            "size": pc.multiply(entries["file_size"], sign),
            "creation_time": entries["creation_time"],
        }
    )
    return counted.group_by("partition").aggregate(_SUMS)


def _made(table: PaimonTable, sums: Sequence[Mapping[str, int | None]], rows: Sequence[bytes]) -> PartitionFiles:
    times = [each["creation_time_max"] for each in sums]
    known = [each for each in times if each is not None]
    last_write = written_at(max(known), table.zone) if known else None
    files, records, size = (sum(each[f"{name}_sum"] or 0 for each in sums) for name in ("files", "rows", "size"))
    null = option_keys.PARTITION_DEFAULT_NAME.of(table.options)
    return PartitionFiles(values_of(table, rows[0]), files, records, size, last_write, tuple(rows), null)


def _order(texts: FilePaths, row: bytes) -> bytes:
    # Java compares units of UTF-16.
    return ",".join(texts.values(row).values()).encode("utf-16-be", "surrogatepass")


def all_rows(partitions: Iterable[PartitionFiles]) -> set[bytes]:
    """The serialised rows of partitions."""
    return {row for each in partitions for row in each.stored}
