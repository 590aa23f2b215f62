"""File indexes are made for files that lack them, and no data file is written again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import (
    CorruptTableError,
    StreamConfigError,
    UnsupportedTableError,
    compact,
    maintain,
    stream_read_builder,
    stream_write_builder,
)
from pypaimon.streaming.compaction import CompactionReport, rewrite_file_index
from pypaimon.streaming.indexes.container import index_parts
from support.crash.crashing_file_io import Killed, MortalFileIO
from support.docs.cli_runs import Program
from support.java.live import LiveJava
from support.samples import SOAK, sample_seed
from support.tables.evolving_table import EvolvingTable
from support.tables.handles import create_table, current_files, read_with
from support.tables.named_files import needed_files
from support.tables.rescaled_tables import rows, state
from support.tables.rescaled_tables import write as write_parts

pytestmark = [pytest.mark.slow, pytest.mark.soak]

LAST, STEP = 150, 1 if SOAK else 29
COLUMNS = pa.schema([pa.field("k", pa.int64(), False), ("s", pa.string()), ("n", pa.int32())])
ALL = {
    "file-index.bloom-filter.columns": "s",
    "file-index.bloom-filter.s.items": "100",
    "file-index.bitmap.columns": "s",
    "file-index.bsi.columns": "n",
    "file-index.range-bitmap.columns": "n,s",
}
WANTED = {"s": ["bitmap", "bloom-filter", "range-bitmap"], "n": ["bsi", "range-bitmap"]}
PLACES = {"embedded": "1 mb", "beside": "0 b"}
KINDS: dict[str, dict[str, str]] = {
    "append": {"bucket": "-1"},
    "append with buckets": {"bucket": "2", "bucket-key": "k"},
    "deduplicate": {"bucket": "1"},
    "lookup": {"bucket": "1", "changelog-producer": "lookup"},
    "deletion vectors": {"bucket": "1", "deletion-vectors.enabled": "true"},
    "row tracking": {"bucket": "-1", "row-tracking.enabled": "true"},
    "avro": {"bucket": "1", "file.format": "avro"},
    "orc": {"bucket": "1", "file.format": "orc"},
}


def created(warehouse: Any, kind: str) -> Any:
    keys = None if kind.startswith(("append", "row")) else ["k"]
    given = {"metadata.stats-mode": "none", "write-only": "true", **KINDS[kind]}
    table = create_table(warehouse, "t", COLUMNS, primary_keys=keys, options=given)
    for number in range(3):
        write(table, number)
    if kind in ("lookup", "deletion vectors"):
        compact(table)
        write(table, 7)
        compact(table)
    return table


def write(table: Any, number: int) -> None:
    with stream_write_builder(table).with_commit_user("writer").open_sync() as writer:
        # Keys of the files overlap, which is why only some have a row of each number.
        texts = [None, f"text {number}", "of all"]
        given = {"k": [number, number + 1, number + 2], "s": texts, "n": [number, None, 10 + number]}
        writer.write(pa.table(given, schema=COLUMNS))
        writer.commit()


def altered(warehouse: Any, options: dict[str, str | None], name: str = "db.t") -> Any:
    changes = [
        SchemaChange.remove_option(key) if value is None else SchemaChange.set_option(key, value)
        for key, value in options.items()
    ]
    warehouse.alter_table(name, changes, False)
    return warehouse.get_table(name)


def indexes(file: Any) -> dict[str, list[str]]:
    if file.embedded_index is not None:
        data = bytes(file.embedded_index)
    else:
        (name,) = [name for name in file.extra_files or [] if name.endswith(".index")] or [None]
        if name is None:
            return {}
        data = (Path(file.file_path).parent / name).read_bytes()
    return {column: sorted(part.kind for part in found) for column, found in index_parts(data).items()}


def stored(table: Any) -> dict[str, bytes]:
    return {file.file_name: Path(file.file_path).read_bytes() for file in current_files(table)}


def expire(table: Any) -> None:
    """Keep the latest snapshot alone."""
    # Their writer keeps snapshots that it may need.
    shutil.rmtree(Path(str(table.table_path)) / "consumer")
    report = maintain(table.copy({"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}))
    assert report.plan.earliest_id == report.plan.latest_id


def changes(table: Any) -> list[str]:
    return sorted(map(str, rows(table, "earliest")))


@pytest.mark.parametrize(
    ("kind", "place"), [*((kind, "embedded") for kind in KINDS), ("append", "beside"), ("deletion vectors", "beside")]
)
def test_files_get_indexes_and_nothing_else_changes(warehouse: Any, kind: str, place: str) -> None:
    table = created(warehouse, kind)
    assert not rewrite_file_index(table).compacted
    before, files, told = sorted(map(str, rows(table, "latest-full"))), stored(table), changes(table)
    table = altered(warehouse, {**ALL, "file-index.in-manifest-threshold": PLACES[place]})
    dry = rewrite_file_index(table, dry_run=True)
    assert dry.before.files == len(files) and not dry.new_snapshot_ids
    report = rewrite_file_index(table)
    assert report.before == report.after == dry.before and len(report.new_snapshot_ids) == 1
    assert stored(table) == files
    for file in current_files(table):
        assert indexes(file) == WANTED
        assert (file.embedded_index is not None) == (place == "embedded")
    assert sorted(map(str, rows(table, "latest-full"))) == before and changes(table) == told
    assert not rewrite_file_index(table).compacted and not rewrite_file_index(table, full=True).compacted
    # The table goes on, and its old files expire.
    write(table, 20)
    compact(table, full=True)
    assert {str(indexes(file)) for file in current_files(table)} == {str(WANTED)} or kind == "append with buckets"
    expire(table)
    home = Path(str(table.table_path))
    assert {path.name for path in home.glob("bucket-*/*")} <= needed_files(home)
    assert all(Path(file.file_path).exists() for file in current_files(table))


@pytest.mark.parametrize("place", PLACES)
def test_indexes_that_are_not_wanted_any_more_go(warehouse: Any, place: str) -> None:
    created(warehouse, "append")
    options = {**ALL, "file-index.in-manifest-threshold": PLACES[place]}
    table = altered(warehouse, options)
    rewrite_file_index(table)
    table = altered(warehouse, {"file-index.bitmap.columns": None, "file-index.bsi.columns": "k"})
    write(table, 5)
    before = sorted(map(str, rows(table, "latest-full")))
    assert rewrite_file_index(table).before.files == 3
    for file in current_files(table):
        assert indexes(file) == {"s": ["bloom-filter", "range-bitmap"], "n": ["range-bitmap"], "k": ["bsi"]}
    # Other options of an index are known only if all are made again.
    table = altered(warehouse, {"file-index.bloom-filter.s.items": "5000"})
    assert not rewrite_file_index(table).compacted
    assert rewrite_file_index(table, full=True).before.files == 4
    table = altered(warehouse, {key: None for key in (*ALL, "file-index.bsi.columns") if key.endswith(".columns")})
    assert rewrite_file_index(table).before.files == 4
    assert [indexes(file) for file in current_files(table)] == [{}] * 4 and not rewrite_file_index(table).compacted
    # No file has a name again that was deleted.
    table = altered(warehouse, {**options, "file-index.bloom-filter.s.items": "100"})
    assert rewrite_file_index(table).before.files == 4
    assert [indexes(file) for file in current_files(table)] == [WANTED] * 4
    assert sorted(map(str, rows(table, "latest-full"))) == before
    expire(table)
    assert len(list(Path(str(table.table_path)).rglob("*.index"))) == (0 if place == "embedded" else 4)
    assert sorted(map(str, rows(table, "latest-full"))) == before


def test_a_file_of_another_schema_gets_indexes_by_its_own_columns(warehouse: Any) -> None:
    created(warehouse, "append")
    moves = [
        SchemaChange.rename_column("s", "renamed"),
        SchemaChange.update_column_type("n", AtomicType("BIGINT")),
        SchemaChange.add_column("late", AtomicType("INT")),
        SchemaChange.add_column("s", AtomicType("STRING")),
    ]
    for each in moves:
        warehouse.alter_table("db.t", [each], False)
    table = altered(
        warehouse,
        {
            "file-index.bitmap.columns": "renamed,n,late,s",
            "file-index.bsi.columns": "n",
            "file-index.in-manifest-threshold": "1 mb",
        },
    )
    assert rewrite_file_index(table).new_snapshot_ids
    for file in current_files(table):
        assert indexes(file) == {"s": ["bitmap"], "n": ["bitmap", "bsi"]}
    assert not rewrite_file_index(table).compacted
    found = list(Path(str(table.table_path)).rglob("*.parquet"))
    filtered(table, "renamed", "text 1", [2], found)
    builder = stream_read_builder(table).with_start("latest-full").with_end(latest=True)
    wanted = builder.new_predicate_builder().equal("n", 12)
    assert [row["k"] for row in read_with(builder.with_filter(wanted))] == [4]


def filtered(table: Any, column: str, value: Any, keys: list[int], files: list[Path]) -> None:
    """A filter does not read the files that have no such row: with these gone, the rows are found all the same."""
    builder = stream_read_builder(table).with_start("latest-full").with_end(latest=True)
    builder = builder.with_filter(builder.new_predicate_builder().equal(column, value))
    aside = {}
    for path in files:
        data = path.read_bytes()
        path.unlink()
        try:
            read_with(builder)
        except (CorruptTableError, FileNotFoundError):
            path.write_bytes(data)
        else:
            aside[path] = data
    assert len(aside) == len(files) - 1
    assert [row["k"] for row in read_with(builder)] == keys
    for path, data in aside.items():
        path.write_bytes(data)


def test_data_evolution_has_indexes_of_the_columns_of_each_file(tmp_path: Path) -> None:
    table = EvolvingTable(tmp_path)
    table.numbered(4)
    table.update({1: {"a": "new"}, 2: {"a": "newer"}})
    table.numbered(2)
    table.delete(0)
    options = {"file-index.bitmap.columns": "a,b", "file-index.in-manifest-threshold": "1 mb"}
    handle = altered(table.at.catalog, options, table.at.name)
    assert rewrite_file_index(handle).before.files == 3
    found = sorted((file.first_row_id, sorted(indexes(file))) for file in current_files(handle))
    assert found == [(0, ["a"]), (0, ["a", "b"]), (4, ["a", "b"])]
    table.check()
    table.update({3: {"b": 100}})
    table.check()
    assert compact(handle, full=True).compacted
    table.check()


def test_postponed_files_wait(warehouse: Any) -> None:
    given = {"bucket": "-2", "postpone.default-bucket-num": "2", **ALL}
    table = create_table(warehouse, "t", COLUMNS, primary_keys=["k"], options=given)
    write(table, 1)
    assert not rewrite_file_index(table).compacted
    compact(table)
    assert not rewrite_file_index(table).compacted
    assert {str(indexes(file)) for file in current_files(table)} == {str(WANTED)}


def test_a_missing_or_damaged_index_is_made_again(warehouse: Any) -> None:
    created(warehouse, "append")
    table = altered(warehouse, {**ALL, "file-index.in-manifest-threshold": "0 b"})
    rewrite_file_index(table)
    first, second, _ = sorted(Path(str(table.table_path)).rglob("*.index"))
    first.unlink()
    second.write_bytes(b"damaged")
    assert rewrite_file_index(table).before.files == 2
    assert [indexes(file) for file in current_files(table)] == [WANTED] * 3


def test_an_index_that_cannot_hold_a_value_is_no_reason_for_a_snapshot(warehouse: Any) -> None:
    table = create_table(warehouse, "t", COLUMNS, options={"bucket": "-1"})
    with stream_write_builder(table).with_commit_user("writer").open_sync() as writer:
        writer.write(pa.table({"k": [-(1 << 63)], "s": ["a"], "n": [1]}, schema=COLUMNS))
        writer.commit()
    table = altered(warehouse, {"file-index.bsi.columns": "k,n", "file-index.in-manifest-threshold": "1 mb"})
    assert rewrite_file_index(table).new_snapshot_ids
    assert [indexes(file) for file in current_files(table)] == [{"n": ["bsi"]}]
    assert not rewrite_file_index(table).compacted


BUCKETS = 3


def parts(directory: Path, **options: str) -> Any:
    """A table of two partitions, each with three buckets."""
    catalog = CatalogFactory.create({"warehouse": str(directory)})
    catalog.create_database("d", False)
    columns = pa.schema([pa.field("id", pa.int64(), False), pa.field("p", pa.int32(), False), ("v", pa.int64())])
    given = {"bucket": str(BUCKETS), "num-sorted-run.compaction-trigger": "3", **options}
    create_table(catalog, "t", columns, database="d", partition_keys=["p"], primary_keys=["id", "p"], options=given)
    table = catalog.get_table("d.t")
    for turn in range(3):
        write_parts(table, turn, range(40 - turn))
    indexed = {"file-index.bitmap.columns": "v", "file-index.in-manifest-threshold": "0 b"}
    return altered(catalog, indexed, "d.t")


@pytest.mark.parametrize("other", ["compact", "rewrite", "part"])
def test_what_others_do_meanwhile_is_a_conflict_of_its_bucket(tmp_path: Path, other: str) -> None:
    table = parts(tmp_path)
    before, others = state(table), list[CompactionReport]()

    def meanwhile(done: int, total: int) -> None:
        if done == total and not others:
            if other == "compact":
                others.append(compact(table, full=True, partition={"p": 1}))
            elif other == "rewrite":
                others.append(rewrite_file_index(table))
            else:
                others.append(rewrite_file_index(table, partition={"p": 1}))

    report = rewrite_file_index(table, on_progress=meanwhile)
    assert others[0].new_snapshot_ids
    assert {each.partition["p"] for each in report.compacted} == (set() if other == "rewrite" else {0})
    assert len(report.conflicts) == (2 * BUCKETS if other == "rewrite" else BUCKETS)
    home = tmp_path / "d.db" / "t"
    assert {path.name for path in home.glob("p=*/bucket-*/*")} <= needed_files(home)
    rewrite_file_index(table)
    assert {str(indexes(file)) for file in current_files(table)} == {str({"v": ["bitmap"]})}
    assert state(table) == before


def test_rows_that_are_deleted_meanwhile_stay_deleted(tmp_path: Path) -> None:
    options = {"file-index.bitmap.columns": "a", "file-index.in-manifest-threshold": "0 b"}
    table = EvolvingTable(tmp_path)
    table.numbered(4)
    handle = altered(table.at.catalog, options, table.at.name)
    report = rewrite_file_index(handle, on_progress=lambda done, total: table.delete(2))
    assert report.new_snapshot_ids and not report.conflicts
    table.check()
    table.update({1: {"a": "x"}})
    assert rewrite_file_index(handle, on_progress=lambda done, total: table.update({0: {"a": "y"}})).new_snapshot_ids
    table.check()


@pytest.mark.parametrize("vectors", [False, True])
def test_a_process_dies_at_every_request(tmp_path: Path, vectors: bool) -> None:
    options = {"deletion-vectors.enabled": "true"} if vectors else {}
    for steps in range(1 + sample_seed() % STEP, LAST, STEP):
        table = parts(tmp_path / str(steps), **options)
        if vectors:
            compact(table)
        before, dying = state(table), table.copy({})
        dying.file_io = MortalFileIO(steps)
        try:
            rewrite_file_index(dying, full=True)
        except Killed:
            rewrite_file_index(table)
            assert {str(indexes(file)) for file in current_files(table)} == {str({"v": ["bitmap"]})}
            assert state(table) == before
            continue
        break
    assert STEP < steps < LAST - STEP


def test_a_damaged_file_is_named_and_nothing_changes(tmp_path: Path) -> None:
    table = parts(tmp_path)
    path = Path(current_files(table)[3].file_path)
    path.write_bytes(path.read_bytes()[:-20])
    listed = sorted(tmp_path.rglob("*"))
    with pytest.raises(CorruptTableError, match=path.name):
        rewrite_file_index(table)
    assert sorted(tmp_path.rglob("*")) == listed


def test_refused_before_anything_is_written(warehouse: Any) -> None:
    created(warehouse, "append")
    with pytest.raises(StreamConfigError, match="fpp"):
        rewrite_file_index(altered(warehouse, {**ALL, "file-index.bloom-filter.s.fpp": "2"}))
    with pytest.raises(UnsupportedTableError, match=r"unheard of k\. .* 'file-index\.<kind>\.columns'"):
        rewrite_file_index(
            altered(warehouse, {"file-index.bloom-filter.s.fpp": None, "file-index.unheard.columns": "k"})
        )


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = parts(tmp_path)
    program = Program(tmp_path, capsys)
    dry = json.loads(program("rewrite-file-index", "d.t", "--dry-run", "--json").out)
    assert len(dry["compacted"]) == 2 * BUCKETS
    assert "9 files" in program("rewrite-file-index", "d.t", "--where", "p = 1", "--full").out
    assert "9 files" in program("rewrite-file-index", "d.t").out
    assert {str(indexes(file)) for file in current_files(table)} == {str({"v": ["bitmap"]})}
    assert "nothing is due" in program("rewrite-file-index", "d.t").out


@pytest.mark.java
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("keyed", [False, True], ids=["append", "keyed"])
def test_java_uses_them(java: LiveJava, tmp_path: Path, place: str, keyed: bool) -> None:
    fields = [["k", "INT NOT NULL" if keyed else "INT"], ["s", "STRING"], ["n", "INT"]]
    options = {"metadata.stats-mode": "none", "write-only": "true", "bucket": "1" if keyed else "-1"}
    if keyed:
        # With deletion vectors files are read without merging, so that filters on values drop some.
        options["deletion-vectors.enabled"] = "true"
    java.call(
        "create", warehouse=str(tmp_path), fields=fields, partition_keys=[], primary_keys=["k"] if keyed else [],
        options=options,
    )  # fmt: skip
    for number in range(3):
        java.call("write", flushes=[[["+I", 3 * number + each, f"text {number}", 10 * number] for each in range(3)]])
        if keyed:
            java.call("compact", full=False, options={"write-only": "false", "target-file-size": "1 b"})
    table = CatalogFactory.create({"warehouse": str(tmp_path)}).get_table("d.t")
    files = [Path(file.file_path) for file in current_files(table)]
    assert len(files) == 3
    named = {**ALL, "file-index.in-manifest-threshold": PLACES[place]}
    java.call("alter", changes=[["set", key, value] for key, value in named.items()])
    assert rewrite_file_index(CatalogFactory.create({"warehouse": str(tmp_path)}).get_table("d.t")).new_snapshot_ids
    for wanted in (["s", "=", "text 1"], ["n", "=", 10], ["n", "=", 20], ["s", "=", "text 2"]):
        gone = {}
        for path in files:
            data = path.read_bytes()
            path.unlink()
            reply = read(java, wanted)
            if reply["end"] == "waiting":
                gone[path] = data
            else:
                path.write_bytes(data)
        assert len(gone) == 2
        found = [row for plan in read(java, wanted)["plans"] for split in plan["splits"] for row in split["rows"]]
        assert len(found) == 3 and {row[2 if wanted[0] == "s" else 3] for row in found} == {wanted[2]}
        for path, data in gone.items():
            path.write_bytes(data)
    # Each file is one that no entry has deleted, also if it has the indexes of before again.
    for change in ("reset", "set"):
        changed = [[change, key, value][: 3 if change == "set" else 2] for key, value in ALL.items()]
        java.call("alter", changes=changed)
        table = CatalogFactory.create({"warehouse": str(tmp_path)}).get_table("d.t")
        assert rewrite_file_index(table).before.files == 3
        reply = java.call("read", options={"scan.mode": "latest-full"})
        assert sum(len(split["rows"]) for plan in reply["plans"] for split in plan["splits"]) == 9
    java.call("write", flushes=[[["+I", 1, "text 9", 90]]])
    java.call("compact", full=True, options={"write-only": "false"})
    java.call("expire", options={"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
    assert len(rows(table, "latest-full")) == (9 if keyed else 10)


def read(java: LiveJava, wanted: list[Any]) -> dict[str, Any]:
    return java.call("read", options={"scan.mode": "latest-full"}, filter=wanted)
