"""Tables that are written file by file, as Java's writers, compactions and expiry leave them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
from pypaimon.data.timestamp import Timestamp
from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.manifest.schema.data_file_meta import DataFileMeta
from pypaimon.manifest.schema.manifest_entry import ManifestEntry
from pypaimon.manifest.schema.simple_stats import SimpleStats
from pypaimon.schema.data_types import PyarrowFieldParser
from pypaimon.schema.schema_change import SchemaChange
from pypaimon.table.row.generic_row import GenericRow

from support.models.table import ADDS, KEY, PARTITION, POSTPONED, Column, Commit, DataFile, Place, Record, TableColumns
from support.tables.streamed_table import Table

KIND_CODES = {"+I": 0, "-U": 1, "+U": 2, "-D": 3}
ADD, DELETE = 0, 1
APPENDED, COMPACTED = 0, 1


@dataclass(frozen=True, eq=False)
class WrittenFile(DataFile):
    """A file in the directory of a table, with the metadata of its manifest entry."""

    path: Path
    meta: DataFileMeta
    total_buckets: int


class CraftedTable:
    """A table of (k, p, v, n), where p may be a partition column and k, with p, the primary key.

    Attributes:
        partitioned: Whether p is a partition column; otherwise the table has no p.
        keyed: Whether it has a primary key.
        commits: All snapshots by id, the expired ones included.
        unprotected: The snapshots before this one expired while no consumer kept any, and the number of moments then.
        moments: The earliest and the latest snapshot after each change of one of them; first 1 and 0.
    """

    def __init__(self, warehouse: Path, *, keyed: bool, partitioned: bool, buckets: int, options: dict[str, str]):
        self.keyed, self.partitioned = keyed, partitioned
        self._buckets = buckets
        names = [*([PARTITION] if partitioned else []), KEY]
        fields = [pa.field(KEY, pa.int64(), nullable=not keyed)]
        fields += [pa.field(PARTITION, pa.string(), nullable=not keyed)] if partitioned else []
        fields += [pa.field("v", pa.string()), pa.field("n", pa.int32())]
        self._created = Table(
            warehouse,
            columns=pa.schema(fields),
            primary_keys=names if keyed else (),
            partition_keys=names[:-1],
            **options,
        )
        self.path = self._created.path
        self.commits: dict[int, Commit] = {}
        self._lists: dict[int, dict[str, tuple[str, list[Any]]]] = {}
        self.moments = [(1, 0)]
        self.first_handle = self.handle()
        self.unprotected = 0, 0
        self._recounted = 0
        self.alter()

    # ---- what is there ----

    def handle(self) -> Any:
        """A new handle, which shares no cache with others."""
        return self._created.handle()

    @property
    def latest(self) -> int:
        return max(self.commits, default=0)

    @property
    def earliest(self) -> int:
        """The id of the earliest snapshot that has not expired, or 1."""
        return min(self._lists, default=1)

    @property
    def live(self) -> tuple[DataFile, ...]:
        return self.commits[self.latest].live if self.commits else ()

    def consumers(self) -> list[int]:
        """The next snapshots of the consumers, including those that hold the start of a first plan."""
        found = (self.path / "consumer").glob("consumer-*")
        return [json.loads(file.read_text())["nextSnapshot"] for file in found]

    def start_of(self, consumer: str | None) -> tuple[str, int] | None:
        """Phase and snapshot of the start that the readers of a consumer id share; None: they have no start yet."""
        path = self.path / "consumer" / f"consumer-{consumer}.first-plan"
        position = json.loads(path.read_text())["start"]["position"] if path.exists() else None
        return None if position is None else (position["phase"], position["snapshot"])

    # ---- schema ----

    def alter(self, *changes: SchemaChange) -> None:
        if changes:
            self._created.catalog.alter_table(self._created.name, list(changes), False)
        self._table = self.handle()
        self._fields = self._table.table_schema.fields
        columns = tuple(Column(each.id, each.name, str(each.type).split()[0]) for each in self._fields)
        self.columns = TableColumns(self._table.table_schema.id, columns)

    # ---- files ----

    def file(
        self,
        place: Place,
        records: Sequence[Record],
        *,
        level: int = 0,
        compacted: bool = False,
        suffix: str = "parquet",
        name: str | None = None,
    ) -> WrittenFile:
        """Write a data or changelog file without a commit. Values of dropped columns are left out."""
        kept = tuple(
            replace(record, values={each.id: record.values.get(each.id) for each in self.columns.columns})
            for record in records
        )
        name = name or f"{'data' if level or not compacted else 'compacted'}-{uuid.uuid4()}-0.{suffix}"
        directory = self.path / f"p={place[0]}" if self.partitioned else self.path
        path = directory / ("bucket-postpone" if place[1] == POSTPONED else f"bucket-{place[1]}") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = self._rows(kept)
        if suffix == "orc":
            orc.write_table(rows, str(path), compression="zstd")
        else:
            pq.write_table(rows, path)
        total = -1 if not self._buckets else POSTPONED if place[1] == POSTPONED else self._buckets
        meta = self._meta(path, kept, level, COMPACTED if compacted else APPENDED)
        return WrittenFile(name, place, level, self.columns, kept, path, meta, total)

    @staticmethod
    def upgraded(file: WrittenFile, level: int) -> WrittenFile:
        """The same file at a higher level, as a compaction moves a file that it need not rewrite."""
        return replace(file, level=level, meta=replace(file.meta, level=level))

    def _rows(self, records: Sequence[Record]) -> pa.Table:
        columns: dict[str, pa.Array] = {}
        if self.keyed:
            columns[f"_KEY_{KEY}"] = pa.array([record.key[1] for record in records], pa.int64())
            columns["_SEQUENCE_NUMBER"] = pa.array([record.sequence for record in records], pa.int64())
            columns["_VALUE_KIND"] = pa.array([KIND_CODES[record.kind] for record in records], pa.int8())
        types = PyarrowFieldParser.from_paimon_schema(self._fields)
        for column in self.columns.columns:
            values = [record.values[column.id] for record in records]
            columns[column.name] = pa.array(values, types.field(column.name).type)
        return pa.table(columns)

    def _meta(self, path: Path, records: Sequence[Record], level: int, source: int) -> DataFileMeta:
        fields = [each for each in self._fields if each.name == KEY] if self.keyed else []
        keys = sorted(record.key[1] for record in records)
        low, high = (GenericRow(keys[place : place + 1 or None][: len(fields)], fields) for place in (0, -1))
        values = {each: [record.values[each.id] for record in records] for each in self.columns.columns}
        known = {each: [value for value in found if value is not None] for each, found in values.items()}
        return DataFileMeta(
            file_name=path.name,
            file_size=path.stat().st_size,
            row_count=len(records),
            min_key=low,
            max_key=high,
            key_stats=SimpleStats(low, high, [0] * len(fields)),
            value_stats=SimpleStats(
                GenericRow([min(found, default=None) for found in known.values()], self._fields),
                GenericRow([max(found, default=None) for found in known.values()], self._fields),
                [len(values[each]) - len(found) for each, found in known.items()],
            ),
            min_sequence_number=min(record.sequence for record in records),
            max_sequence_number=max(record.sequence for record in records),
            schema_id=self.columns.id,
            level=level,
            extra_files=[],
            creation_time=Timestamp.now(),
            delete_row_count=sum(record.kind not in ADDS for record in records),
            file_source=source,
        )

    # ---- snapshots ----

    def commit(
        self,
        kind: str,
        added: Sequence[WrittenFile] = (),
        removed: Sequence[WrittenFile] = (),
        changelog: Sequence[WrittenFile] = (),
        *,
        merges_manifests: bool = False,
        recounted: int = 0,
    ) -> Commit:
        """Make a snapshot.

        Args:
            merges_manifests: Merge the earlier manifests into one of the live files.
            recounted: The difference that a repair makes to the total of this and of all later snapshots.
        """
        before, number = self.live, self.latest + 1
        gone = set(map(id, removed))
        live = (*(file for file in before if id(file) not in gone), *added)
        lists = {"base": self._base(before, merges_manifests)}
        lists["delta"] = self._manifests([*_entries(DELETE, removed), *_entries(ADD, added)])
        if changelog:
            lists["changelog"] = self._manifests(_entries(ADD, changelog))
        names = {role: f"manifest-list-{uuid.uuid4()}-{role}" for role in lists}
        snapshot: dict[str, Any] = {"version": 3, "id": number, "schemaId": self.columns.id}
        for role, manifests in lists.items():
            snapshot[f"{role}ManifestList"] = names[role]
            size = ManifestListManager(self._table).write(names[role], manifests)
            snapshot[f"{role}ManifestListSize"] = size
        snapshot |= {"commitUser": "writer", "commitIdentifier": number, "commitKind": kind}
        self._recounted += recounted
        total = max(0, _count(live) + self._recounted)
        snapshot |= {"timeMillis": 1_700_000_000_000 + number, "totalRecordCount": total}
        snapshot |= {"deltaRecordCount": _count(added) - _count(removed), "uuid": str(uuid.uuid4())}
        if changelog:
            snapshot["changelogRecordCount"] = _count(changelog)
        self._lists[number] = {role: (names[role], manifests) for role, manifests in lists.items()}
        self.commits[number] = Commit(
            number, kind, self.columns, tuple(added), tuple(removed), tuple(changelog), tuple(live)
        )
        directory = self.path / "snapshot"
        directory.mkdir(exist_ok=True)
        (directory / f"snapshot-{number}").write_text(json.dumps(snapshot))
        (directory / "LATEST").write_text(str(number))
        self.moments.append((self.earliest, self.latest))
        return self.commits[number]

    def _base(self, before: Sequence[DataFile], merges: bool) -> list[Any]:
        if not self.commits:
            return []
        if merges:
            return self._manifests(_entries(ADD, before))
        last = self._lists[self.latest]
        return [*last["base"][1], *last["delta"][1]]

    def _manifests(self, entries: list[ManifestEntry]) -> list[Any]:
        return ManifestFileManager(self._table).rolling_write(entries, 1 << 20, f"manifest-{uuid.uuid4()}")

    # ---- expiry ----

    def expire(self, keep_from: int) -> None:
        """Remove the snapshots before one, and every file that no later snapshot needs."""
        if not self.consumers():
            self.unprotected = keep_from, len(self.moments)
        gone = [number for number in self._lists if number < keep_from]
        files, meta = self._needed(gone)
        for number in gone:
            (self.path / "snapshot" / f"snapshot-{number}").unlink()
            del self._lists[number]
        (self.path / "snapshot" / "EARLIEST").write_text(str(keep_from))
        kept_files, kept_meta = self._needed(self._lists)
        for path in (files | meta) - kept_files - kept_meta:
            path.unlink()
        self.moments.append((self.earliest, self.latest))

    def _needed(self, numbers: Iterable[int]) -> tuple[set[Path], set[Path]]:
        """The data and changelog files of snapshots, and their manifests and manifest lists."""
        files: set[Path] = set()
        meta: set[Path] = set()
        for number in numbers:
            commit = self.commits[number]
            files |= {file.path for file in (*commit.live, *commit.changelog) if isinstance(file, WrittenFile)}
            for name, manifests in self._lists[number].values():
                meta |= {self.path / "manifest" / each for each in (name, *(one.file_name for one in manifests))}
        return files, meta


def _entries(kind: int, files: Iterable[Any]) -> list[ManifestEntry]:
    return [
        ManifestEntry(kind, GenericRow(*_partition(file)), file.place[1], file.total_buckets, file.meta)
        for file in files
    ]


def _partition(file: WrittenFile) -> tuple[list[Any], list[Any]]:
    if file.place[0] is None:
        return [], []
    fields = [each for each in file.meta.value_stats.min_values.fields if each.name == PARTITION]
    return [file.place[0]], fields


def _count(files: Iterable[DataFile]) -> int:
    return sum(len(file.records) for file in files)
