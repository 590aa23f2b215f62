"""State is state: which records of data files are rows of it, whatever manifests say, and which rows are deleted."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pypaimon.manifest.index_manifest_file import INDEX_MANIFEST_ENTRY_SCHEMA
from pypaimon.table.row.generic_row import GenericRow
from pyroaring import BitMap

from pypaimon.streaming import stream_read_builder
from pypaimon.streaming.model.plan import SplitMode
from pypaimon.streaming.paimon.internals import DeletionFile
from support.models.table import POSTPONED, Record
from support.tables.crafted_table import CraftedTable
from support.tables.handles import create_table, read_with
from support.tables.stream_files import put, reader, records, split
from support.tables.streamed_table import Table, all_keys, available, keys

APPEND = pa.schema([("id", pa.int32()), ("v", pa.string())])
KEYED = pa.schema([pa.field("id", pa.int32(), nullable=False), ("v", pa.string())])
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)


def keyed(warehouse: Any, **options: str) -> Any:
    options = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    return create_table(warehouse, "keyed", KEYED, primary_keys=["id"], options={"bucket": "1", **options})


def rows(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": ids, "v": [str(number) for number in ids]}, APPEND)


def file(table: Any, name: str, kinds: Sequence[int], first: int = 1, sequence: int = 0, **changes: Any) -> Any:
    """A file of consecutive keys, of these kinds, whose manifest entry counts no delete."""
    stored = records(kinds, rows(first, len(kinds)))
    numbers = pa.array(range(sequence, sequence + len(kinds)), pa.int64())
    low, high = (GenericRow([key], table.fields[:1]) for key in (first, first + len(kinds) - 1))
    stored = stored.set_column(0, "_SEQUENCE_NUMBER", numbers)
    return put(table, f"{name}.parquet", stored, min_key=low, max_key=high, **changes)


def shown(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def deleted(table: Any, rows_of: Sequence[set[int]]) -> list[DeletionFile]:
    """An index file with a deletion vector for each set of rows."""
    data, found = b"\1", []
    path = Path(str(table.table_path)) / "index" / f"index-{len(rows_of)}"
    for places in rows_of:
        content = struct.pack(">I", 1581511376) + BitMap(places).serialize()
        found.append(DeletionFile(str(path), len(data), len(content), len(places)))
        data += struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return found


def index_manifest(table: Any, snapshot_id: int, vectors: dict[str, DeletionFile]) -> None:
    """Give a snapshot, of a table without partitions and with one bucket, an index manifest that names these."""
    entries = [
        {
            "_VERSION": 1,
            "_KIND": 0,
            "_PARTITION": bytes(12),
            "_BUCKET": 0,
            "_INDEX_TYPE": "DELETION_VECTORS",
            "_FILE_NAME": Path(vector.dv_index_path).name,
            "_FILE_SIZE": Path(vector.dv_index_path).stat().st_size,
            "_ROW_COUNT": 1,
            "_DELETIONS_VECTORS_RANGES": [
                {"f0": name, "f1": vector.offset, "f2": vector.length, "_CARDINALITY": vector.cardinality}
            ],
        }
        for name, vector in vectors.items()
    ]
    directory, name = Path(str(table.table_path)), f"index-manifest-{snapshot_id}"
    with (directory / "manifest" / name).open("wb") as out:
        fastavro.writer(out, INDEX_MANIFEST_ENTRY_SCHEMA, entries)
    path = directory / "snapshot" / f"snapshot-{snapshot_id}"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"indexManifest": name}))


# Deletes that manifests do not count.


def test_deletes_in_a_file_that_pypaimon_wrote_are_not_rows_of_the_state(tmp_path: Path) -> None:
    table = Table(tmp_path, primary_key=True, bucket="1")
    table.commit([("+I", 1, "a"), ("-D", 2, "b"), ("-U", 3, "c"), ("+U", 4, "d")])
    found = read_with(table.builder().with_end(latest=True))
    assert [(row["_row_kind"], row["k"]) for row in found] == [("+I", 1), ("+I", 4)]


@pytest.mark.parametrize("level", [0, 5])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"deletion-vectors.enabled": "true"},
        {"merge-engine": "first-row", "ignore-delete": "true", "changelog-producer": "lookup"},
        {"merge-engine": "partial-update", "ignore-delete": "true"},
        {"merge-engine": "aggregation"},
    ],
    ids=lambda options: options.get("merge-engine", "-".join(options) or "deduplicate"),
)
def test_a_lone_file_gives_no_deletes_wherever_compaction_has_moved_it(
    warehouse: Any, options: dict[str, str], level: int
) -> None:
    table = keyed(warehouse, **options)
    lone = file(table, "a", [INSERT, DELETE, UPDATE_AFTER, UPDATE_BEFORE], level=level)
    plan = [split(SplitMode.MERGE, [lone])]
    assert shown(reader(table).to_arrow(plan)) == [("+I", 1, "1"), ("+I", 3, "3")]
    assert shown(reader(table, projection=("v",)).to_arrow(plan)) == [("+I", "1"), ("+I", "3")]
    audit = reader(table, view="audit_log", projection=("rowkind", "id"), include_row_kind=False)
    assert shown(audit.to_arrow(plan)) == [("+I", 1), ("-D", 2), ("+U", 3), ("-U", 4)]


@pytest.mark.parametrize("levels", [(5, 5), (3, 5)], ids=["one level", "levels that share no key"])
def test_several_files_that_share_no_key_give_no_deletes(warehouse: Any, levels: tuple[int, int]) -> None:
    table = keyed(warehouse, **{"deletion-vectors.enabled": "true"})
    files = [
        file(table, "a", [DELETE, INSERT], level=levels[0]),
        file(table, "b", [INSERT, DELETE], first=3, level=levels[1]),
    ]
    assert shown(reader(table).to_arrow([split(SplitMode.MERGE, files)])) == [("+I", 2, "2"), ("+I", 3, "3")]


def test_a_lone_file_whose_deletes_are_counted_is_merged_as_in_java(warehouse: Any) -> None:
    table = keyed(warehouse)
    lone = file(table, "a", [UPDATE_AFTER, DELETE], delete_row_count=1)
    assert shown(reader(table).to_arrow([split(SplitMode.MERGE, [lone])])) == [("+U", 1, "1")]


def test_deletes_are_rows_of_neither_state_that_net_changes_compare(warehouse: Any) -> None:
    table = keyed(warehouse)
    before = file(table, "a", [INSERT, DELETE, DELETE, INSERT])
    after = file(table, "b", [INSERT, DELETE, INSERT, DELETE], sequence=9)
    plan = [split(SplitMode.NET, [after], before_files=[before])]
    assert shown(reader(table).to_arrow(plan)) == [("+I", 3, "3"), ("-D", 4, "4")]


def test_an_audit_log_shows_deletes_of_the_state_but_not_of_what_an_overwrite_left(warehouse: Any) -> None:
    table = keyed(warehouse)
    before, after = file(table, "a", [INSERT, DELETE]), file(table, "b", [DELETE, INSERT], sequence=9)
    audit = reader(table, view="audit_log", projection=("rowkind", "id"), include_row_kind=False)
    plan = [split(SplitMode.OVERWRITE, [after], before_files=[before])]
    assert shown(audit.to_arrow(plan)) == [("-D", 1), ("+I", 2)]


# Deletion vectors.


@pytest.mark.parametrize("batch_size", [7, 30, 1000])
def test_deletion_vectors_count_from_the_first_row_of_the_file(warehouse: Any, batch_size: int) -> None:
    table = create_table(warehouse, "append", APPEND, options={"deletion-vectors.enabled": "true"})
    gone = {0, 6, 7, 29, 30, 45, 99}
    files = [put(table, "a.parquet", rows(0, 100)), put(table, "b.parquet", rows(100, 100))]
    plan = [split(SplitMode.ROWS, files, deletion_files=deleted(table, [gone, {8}]))]
    found = reader(table, batch_size=batch_size).to_arrow(plan)["id"].to_pylist()
    assert found == [number for number in range(200) if number not in gone | {108}]


@pytest.mark.parametrize("batch_size", [7, 1000])
def test_deletion_vectors_of_any_file_of_a_row_take_the_row_away(warehouse: Any, batch_size: int) -> None:
    options = {"data-evolution.enabled": "true", "row-tracking.enabled": "true", "deletion-vectors.enabled": "true"}
    table = create_table(warehouse, "evolving", APPEND, options=options)
    ids, texts = (rows(0, 20).select([name]) for name in ("id", "v"))
    one = put(table, "a.parquet", ids, first_row_id=0, write_cols=["id"], max_sequence_number=1)
    two = put(table, "b.parquet", texts, first_row_id=0, write_cols=["v"], max_sequence_number=2)
    more = put(table, "c.parquet", rows(20, 10), first_row_id=20, max_sequence_number=3)
    vectors = deleted(table, [{1, 8, 15}, {8, 19}, {0}])
    plan = [split(SplitMode.EVOLUTION, [one, two, more], deletion_files=vectors)]
    found = shown(reader(table, batch_size=batch_size).to_arrow(plan))
    gone = {1, 8, 15, 19, 20}
    assert found == [("+I", number, str(number)) for number in range(30) if number not in gone]


def test_an_overwrite_takes_away_what_was_there_and_not_what_was_deleted_before(tmp_path: Path) -> None:
    options = {"bucket": "1", "deletion-vectors.enabled": "true"}
    table = CraftedTable(tmp_path, keyed=True, partitioned=False, buckets=1, options=options)
    handle, key = table.handle(), table.columns.named("k").id
    files = []
    for first, deleted_row in ((1, 1), (4, 2)):
        keys = [Record("+I", (None, number), number, {key: number}) for number in range(first, first + 3)]
        files.append(table.file((None, 0), keys, level=5, compacted=True))
        snapshot = table.commit("OVERWRITE", files[-1:], files[:-1]).id
        index_manifest(handle, snapshot, {files[-1].name: deleted(handle, [{deleted_row}] * snapshot)[-1]})
    builder = stream_read_builder(handle).with_start(snapshot_id=2).with_on_overwrite("read").with_end(latest=True)
    found = [(row["_row_kind"], row["k"]) for row in read_with(builder)]
    assert found == [("-D", 1), ("-D", 3), ("+I", 4), ("+I", 5)]


def test_deletion_vectors_count_in_the_state_and_not_in_changes(tmp_path: Path) -> None:
    options = {"bucket": "-1", "deletion-vectors.enabled": "true"}
    table = CraftedTable(tmp_path, keyed=False, partitioned=False, buckets=0, options=options)
    handle, key = table.handle(), table.columns.named("k").id
    lone = table.file((None, 0), [Record("+I", (None, number), number, {key: number}) for number in range(3)])
    index_manifest(handle, table.commit("APPEND", [lone]).id, {lone.name: deleted(handle, [{1}])[0]})
    for start, wanted in (("latest-full", [0, 2]), ("earliest", [0, 1, 2])):
        builder = stream_read_builder(handle).with_start(start)
        assert all_keys(builder) == wanted


# Levels of which a changelog tells later.


@pytest.mark.parametrize(
    ("producer", "in_state"), [("none", [0, 3, 5]), ("input", [0, 3, 5]), ("lookup", [3, 5]), ("full-compaction", [5])]
)
def test_a_row_is_in_the_state_unless_a_changelog_has_it_later(
    tmp_path: Path, producer: str, in_state: list[int]
) -> None:
    options = {"bucket": "1", "changelog-producer": producer}
    table = CraftedTable(tmp_path, keyed=True, partitioned=False, buckets=1, options=options)
    key_id = table.columns.named("k").id
    of_level = {level: Record("+I", (None, level), level, {key_id: level}) for level in (0, 3, 5)}
    files = {level: table.file((None, 0), [record], level=level) for level, record in of_level.items()}
    table.commit("COMPACT", list(files.values()))
    builder = stream_read_builder(table.handle())
    with builder.new_streaming_scan() as scan:
        assert keys(builder.new_read(), available(scan)) == in_state
        later = [level for level in of_level if level not in in_state]
        changelog = [table.file((None, 0), [of_level[level] for level in later])] if later else []
        merged = table.file((None, 0), [of_level[0], of_level[3]], level=5, compacted=True)
        table.commit("COMPACT", [merged], [files[0], files[3]], changelog)
        assert keys(builder.new_read(), available(scan)) == later


# The postponed bucket.


@pytest.mark.parametrize(("producer", "read"), [("none", True), ("input", False), ("lookup", False)])
def test_postponed_rows_are_read_unless_a_changelog_has_them_later(tmp_path: Path, producer: str, read: bool) -> None:
    options = {"bucket": "-2", "changelog-producer": producer}
    table = CraftedTable(tmp_path, keyed=True, partitioned=False, buckets=1, options=options)
    ids = {column.name: column.id for column in table.columns.columns}
    merged, pending = (Record(kind, (None, 1), number, {ids["k"]: 1}) for number, kind in enumerate(("+I", "-D")))
    table.commit("COMPACT", [table.file((None, 0), [merged], level=5, compacted=True)])
    table.commit("APPEND", [table.file((None, POSTPONED), [pending])])
    found = [row["_row_kind"] for row in read_with(stream_read_builder(table.handle()).with_end(latest=True))]
    assert found == ["+I", "-D"][: 1 + read]
