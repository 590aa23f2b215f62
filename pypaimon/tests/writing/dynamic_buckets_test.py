"""Tables with dynamic buckets: a key is in one bucket for ever, whoever writes it, and whatever goes wrong between."""

from __future__ import annotations

import random
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pypaimon.streaming import StreamConfigError, stream_write_builder
from pypaimon.streaming.commit.conflicts import TableState
from pypaimon.streaming.errors import CorruptTableError, WriterClosedError, WriterConflictError
from pypaimon.streaming.metadata.index_manifests import HASH
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.writing.routing import key_hashes
from support.crash.crashing_file_io import Killed, MortalFileIO
from support.samples import SOAK, sample_seed
from support.tables.handles import create_table, write_by_pypaimon, write_with
from support.tables.streamed_table import Table
from support.tables.written_tables import changes, key_value_table, rows

pytestmark = [pytest.mark.slow, pytest.mark.soak]

PARTITIONED = pa.schema(
    [pa.field("p", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.string())]
)

STEP = 1 if SOAK else 12


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return key_value_table(tmp_path, bucket="-1", **{"dynamic-bucket.target-row-num": "3"})


def owners(table: Any) -> dict[Any, set[tuple[Any, int]]]:
    """In which partitions and buckets each key lies, deleted ones too."""
    found = defaultdict(set)
    for file in TableState(TableDirectory.of(table), TableDirectory.of(table).snapshots.get_latest_snapshot()).files(
        None
    ):
        (path,) = Path(str(table.table_path)).rglob(file.name)
        for key in pq.read_table(path, partitioning=None)["k"].to_pylist():
            found[key].add((path.parent.parent.name, file.bucket))
    return dict(found)


def indexed(table: Any) -> dict[int, set[int]]:
    """Hashes in the index files, by bucket; each bucket has one file."""
    found: dict[int, set[int]] = {}
    for each in _state(table).index:
        assert each["_INDEX_TYPE"] == HASH and each["_BUCKET"] not in found
        path = Path(str(table.table_path)) / "index" / each["_FILE_NAME"]
        hashes = np.fromfile(path, ">i4").tolist()
        assert (each["_ROW_COUNT"], each["_FILE_SIZE"]) == (len(hashes), path.stat().st_size)
        found[each["_BUCKET"]] = set(hashes)
    return found


def check(table: Table) -> None:
    """Each key lies in one bucket, and the index says so."""
    handle = table.handle()
    wanted = defaultdict(set)
    for key, places in owners(handle).items():
        ((_, bucket),) = places
        wanted[bucket].add(int(key_hashes([pa.array([key], pa.int64())], handle.trimmed_primary_keys_fields)[0]))
    assert indexed(handle) == wanted


def test_keys_stay_in_their_buckets(table: Table) -> None:
    with table.writer().open_sync() as writer:
        writer.write(rows(*range(5)))
        writer.commit()
        writer.write(rows(3, 4, 5, 6, 7, value="w"))
        writer.commit()
    write_with(table.writer(), changes(("-D", 0, "v0"), ("+U", 7, "x"), ("+I", 8, "v8"), ("+I", 9, "v9")))
    check(table)
    assert [len(each) for each in indexed(table.handle()).values()] == [3, 3, 3, 1]
    assert table.rows() == [
        *((1, "v1"), (2, "v2"), (3, "w3"), (4, "w4"), (5, "w5"), (6, "w6"), (7, "x"), (8, "v8"), (9, "v9"))
    ]


def test_pypaimon_continues(table: Table) -> None:
    for number in range(4):
        keys = rows(*range(3 * number, 3 * number + 5), value=f"{number}.")
        if number % 2:
            write_by_pypaimon(table.handle(), keys)
        else:
            write_with(table.writer(), keys)
        check(table)
    assert len(table.rows()) == 14


def test_what_was_not_committed_leaves_no_trace(table: Table) -> None:
    with table.writer().open_sync() as writer:
        writer.write(rows(1, 2))
        writer.commit()
        writer.write(rows(3))
        writer.abort()
        writer.write(rows(4))
        writer.commit()
        check(table)
        writer.write(rows(3, 1))
        writer.commit()
    check(table)
    with table.writer().open_sync() as writer:
        writer.write(rows(9))
    check(table)
    named = {each["_FILE_NAME"] for each in _state(table.handle()).index}
    assert {path.name for path in (table.path / "index").iterdir()} > named, "older snapshots name others"


def test_a_commit_that_the_table_holds_is_not_assigned_again(table: Table) -> None:
    for _ in range(2):
        with table.writer().open_sync() as writer:
            writer.write(rows(1, 2))
            writer.commit(5)
            writer.write(rows(2, 3, 4, 5))
            writer.commit(6)
    assert table.ids() == [1, 2]
    check(table)


def test_two_writers_of_new_keys_cannot_both_commit(table: Table) -> None:
    with table.writer("one").open_sync() as one, table.writer("two").open_sync() as two:
        one.write(rows(1, 2))
        two.write(rows(2, 3))
        one.commit()
        with pytest.raises(WriterConflictError, match=r"dynamic buckets: Another writer .* Open a new one"):
            two.commit()
        with pytest.raises(WriterClosedError):
            two.write(rows(2))
        assert table.rows() == [(1, "v1"), (2, "v2")]
        write_with(table.writer("two"), rows(2, 3, value="w"))
        # By turns they may go on.
        one.write(rows(3, 4, value="x"))
        one.commit()
    check(table)
    assert table.rows() == [(1, "v1"), (2, "w2"), (3, "x3"), (4, "x4")]
    assert len(list((table.path / "index").iterdir())) == len({*_index_names(table)}), "those left out are deleted"


@pytest.mark.parametrize("meanwhile", [(), (5, 6, 7, 1)])
def test_buckets_hold_over_new_columns_in_one_commit(table: Table, meanwhile: tuple[int, ...]) -> None:
    """Rows before and after a new column are one commit. It fails if another writer commits keys between them."""
    with table.writer("one").open_sync() as one:
        one.write(rows(1))
        if meanwhile:
            write_with(table.writer("two"), rows(*meanwhile))
        later = [{"op": "c", "after": {"k": key, "v": "w", "new": True}} for key in (1, 2)]
        one.write_changes(later, "debezium-json", on_new_column="add")
        with pytest.raises(WriterConflictError) if meanwhile else nullcontext():
            one.commit()
    check(table)
    assert [key for key, *_ in table.rows()] == sorted(meanwhile or (1, 2))


def test_an_overwrite_between_ends_the_commit(table: Table) -> None:
    with table.writer("one").open_sync() as one:
        one.write(rows(1, 2))
        one.commit()
        # No key of it is new.
        one.write(rows(1))
        write_with(table.writer("two").with_overwrite(), rows(7))
        with pytest.raises(WriterConflictError):
            one.commit()
    assert table.rows() == [(7, "v7")]
    check(table)


def test_overwrites_begin_again(table: Table) -> None:
    write_with(table.writer(), rows(*range(9)))
    with table.writer().with_overwrite().open_sync() as writer:
        for keys in ((7, 8), (8, 9)):
            writer.write(rows(*keys))
            writer.commit()
    check(table)
    assert indexed(table.handle()).keys() == {0} and table.rows() == [(8, "v8"), (9, "v9")]
    write_with(table.writer(), rows(8, 9, 10, 11))
    check(table)


def test_partitions_have_buckets_of_their_own(warehouse: Any) -> None:
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "2"}
    table = create_table(warehouse, "t", PARTITIONED, primary_keys=["p", "k"], partition_keys=["p"], options=options)

    def commit(overwrite: bool, *given: tuple[str, int]) -> None:
        builder = stream_write_builder(warehouse.get_table("db.t"))
        with (builder.with_overwrite() if overwrite else builder).open_sync() as writer:
            writer.write(
                pa.table([[p for p, _ in given], [k for _, k in given], ["v"] * len(given)], schema=PARTITIONED)
            )
            writer.commit()

    commit(False, ("a", 1), ("b", 1), (" ", 1), ("a", 2), ("a", 3), ("b", 2))
    commit(False, ("a", 3), ("a", 4), (" ", 2), (" ", 1))
    found = owners(table)
    blank = "p=__DEFAULT_PARTITION__"
    assert found == {
        1: {("p=a", 0), ("p=b", 0), (blank, 0)}, 2: {("p=a", 0), ("p=b", 0), (blank, 0)},
        3: {("p=a", 1)}, 4: {("p=a", 1)},
    }  # fmt: skip
    commit(True, ("a", 4), ("a", 9))
    assert {key: places for key, places in owners(table).items() if ("p=a", 0) in places} == {
        4: {("p=a", 0)}, 9: {("p=a", 0)},
    }  # fmt: skip
    rows_of_index = [(each["_PARTITION"], each["_BUCKET"]) for each in _state(table).index]
    assert len(rows_of_index) == len(set(rows_of_index)) == 3
    with stream_write_builder(table).with_overwrite({"p": "a"}).open_sync() as writer:
        writer.commit()
    assert len(_state(table).index) == 2, "a partition that is gone has no index"


def test_two_writers_of_other_partitions_do_not_meet(warehouse: Any) -> None:
    create_table(
        warehouse, "t", PARTITIONED, primary_keys=["p", "k"], partition_keys=["p"], options={"bucket": "-1"}
    )  # fmt: skip
    one, two = (stream_write_builder(warehouse.get_table("db.t")).open_sync() for _ in range(2))
    with one, two:
        for number in range(3):
            for writer, partition in ((one, "a"), (two, "b")):
                writer.write(pa.table([[partition], [number], ["v"]], schema=PARTITIONED))
            assert one.commit().snapshot_id == 2 * number + 1
            assert two.commit().snapshot_id == 2 * number + 2
    assert len(owners(warehouse.get_table("db.t"))) == 3


def test_at_most_as_many_buckets_as_the_table_says(tmp_path: Path) -> None:
    options = {"dynamic-bucket.target-row-num": "2", "dynamic-bucket.max-buckets": "3"}
    table = key_value_table(tmp_path, bucket="-1", **options)
    for number in range(3):
        with table.writer().open_sync() as writer:
            writer.write(rows(*range(20 * number, 20 * number + 30)))
            writer.commit()
            check(table)
    sizes = [len(each) for each in indexed(table.handle()).values()]
    assert len(sizes) == 3 and sum(sizes) == 70 and min(sizes) > 10


def test_a_process_that_dies_leaves_keys_where_they_were(table: Table) -> None:
    def run(commit: int, steps: int | None) -> int:
        handle = table.handle()
        handle.file_io = MortalFileIO(steps)
        with stream_write_builder(handle).with_commit_user("writer").open_sync() as writer:
            writer.write(rows(*range(commit, commit + 4), value=f"{commit}."))
            writer.commit(commit)
        return int(handle.file_io.steps)

    run(0, None)
    taken = run(1, None)
    for number, steps in enumerate(range(random.Random(sample_seed()).randrange(STEP), taken, STEP), start=2):
        with pytest.raises(Killed):
            run(number, steps)
        if number % 2:
            run(number, None)
        check(table)
    run(100, None)
    check(table)
    with table.writer().open_sync() as writer:
        assert writer.last_committed == 100


def test_a_damaged_index_does_not_count_as_empty(table: Table) -> None:
    write_with(table.writer(), rows(1, 2))
    (path,) = (table.path / "index").iterdir()
    data = path.read_bytes()
    for damaged in (data[:-1], data[:4], None):
        path.unlink() if damaged is None else path.write_bytes(damaged)
        with table.writer().open_sync() as writer, pytest.raises(CorruptTableError, match="index-"):
            writer.write(rows(1))


def test_options_are_checked_when_it_is_opened(tmp_path: Path) -> None:
    table = key_value_table(tmp_path, bucket="-1", **{"dynamic-bucket.max-buckets": "0"})
    with pytest.raises(StreamConfigError, match=r"'dynamic-bucket\.max-buckets'"):
        table.writer().open_sync().__enter__()


def _state(table: Any) -> TableState:
    directory = TableDirectory.of(table)
    return TableState(directory, directory.snapshots.get_latest_snapshot())


def _index_names(table: Table) -> list[str]:
    handle = table.handle()
    directory = TableDirectory.of(handle)
    snapshots = [directory.snapshots.try_get(number) for number in table.ids()]
    return [each["_FILE_NAME"] for one in snapshots for each in TableState(directory, one).index]
