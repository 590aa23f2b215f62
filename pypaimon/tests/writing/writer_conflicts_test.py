"""Something comes between what a writer does: it goes on behind it, or ends with an error that says so.

After an error nothing of the batch is visible, and no file of it is left.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import BlockingStreamWriter, PaimonStreamError, TableChangedError, compact, stream_write_builder
from pypaimon.streaming.commit.ledger import WINDOW
from pypaimon.streaming.errors import WriterClosedError, WriterConflictError
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.samples import SOAK, sample_seed
from support.stores.counting_file_io import CountingFileIO
from support.tables.handles import write_with
from support.tables.streamed_table import Table
from support.tables.written_tables import key_value_table, rows

pytestmark = [pytest.mark.slow, pytest.mark.soak]

Between = Callable[[Table], object]


@pytest.fixture(params=["append", "keyed"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """Four commits of another writer, each of one key."""
    found = key_value_table(tmp_path, keyed=request.param == "keyed", **{"num-sorted-run.compaction-trigger": "2"})
    for key in range(4):
        other(key)(found)
    return found


def other(key: int) -> Between:
    def commit(table: Table) -> None:
        write_with(table.writer("other"), rows(key, value="other"))

    return commit


def compacted(table: Table) -> None:
    compact(table.handle(), full=True)
    assert table.snapshot(table.latest())["commitKind"] == "COMPACT"


def truncated(table: Table) -> None:
    table.handle().new_batch_write_builder().new_commit().truncate_table()


def altered(*changes: SchemaChange) -> Between:
    return lambda table: table.catalog.alter_table(table.name, list(changes), False)


def recreated(table: Table) -> None:
    table.recreate()


GOES_ON: dict[str, Between] = {
    "other": other(2),
    "compaction": compacted,
    "truncated": truncated,
    "rolled back behind others": lambda table: table.rollback(table.latest() - 1),
    "renamed column": altered(SchemaChange.rename_column("v", "w")),
    "new column": altered(SchemaChange.add_column("w", AtomicType("INT"))),
    "option": altered(SchemaChange.set_option("target-file-size", "1 mb")),
}


STAGES = ["opened", "in memory", "in files", "committed"]
"""How far the writer has come: it is open; its rows wait in memory, or lie in files; it has committed before."""


def opened(table: Table, stage: str) -> BlockingStreamWriter:
    builder = table.writer().with_memory_limit(1) if stage == "in files" else table.writer()
    return builder.open_sync()


def visible(table: Table) -> Counter[tuple[Any, ...]]:
    """Key and value of the rows that the table holds, by pypaimon's batch read."""
    return Counter(row[:2] for row in table.rows())


def behind(table: Table, state: Counter[tuple[Any, ...]], *keys: int) -> Counter[tuple[Any, ...]]:
    new = [(key, f"new{key}") for key in keys]
    if table.handle().is_primary_key_table:
        return Counter([*{**dict(iter(state)), **dict(new)}.items()])
    return state + Counter(new)


def drawn(actions: Mapping[str, object], count: int) -> pytest.MarkDecorator:
    """What comes between, and when: some of all, all in the long form."""
    cases = list(product(actions, STAGES))
    found = cases if SOAK else random.Random(f"{sample_seed()} conflicts").sample(cases, count)
    return pytest.mark.parametrize(("between", "stage"), found)


@drawn(GOES_ON, 5)
def test_a_writer_continues_after_it(table: Table, between: str, stage: str) -> None:
    with opened(table, stage) as writer:
        if stage == "committed":
            writer.write(rows(1, 5, value="new"))
            writer.commit()
        if between == "rolled back behind others":
            other(6)(table)
        if stage != "opened":
            writer.write(rows(1, 7, value="new"))
        GOES_ON[between](table)
        state = visible(table)
        if stage == "opened":
            writer.write(rows(1, 7, value="new"))
        report = writer.commit()
        assert (report.snapshot_id, report.repeated) == (table.latest(), False)
        assert visible(table) == behind(table, state, 1, 7)
        writer.write(rows(8, value="new"))
        writer.commit()
    assert visible(table) == behind(table, behind(table, state, 1, 7), 8)
    assert table.ids() == list(range(1, table.latest() + 1))
    compact(table.handle(), full=True)
    assert visible(table) == behind(table, behind(table, state, 1, 7), 8)


@pytest.mark.parametrize("stage", STAGES)
def test_two_writers_of_one_key(tmp_path: Path, stage: str) -> None:
    """The later commit wins, unless its rows were numbered before: then one of the two is there, as in Java."""
    table = key_value_table(tmp_path)
    with opened(table, stage) as writer:
        if stage == "committed":
            writer.write(rows(1))
            writer.commit()
        if stage != "opened":
            writer.write(rows(1, 2, value="new"))
        other(1)(table)
        if stage == "opened":
            writer.write(rows(1, 2, value="new"))
        writer.commit()
    (one, two) = table.rows()
    assert two == (2, "new2")
    assert one == (1, "new1") or (stage == "in files" and one == (1, "other1"))


def dropped(table: Table) -> None:
    table.drop()


ENDS: dict[str, tuple[Between, type[PaimonStreamError], str]] = {
    "dropped": (dropped, TableChangedError, "was dropped or recreated"),
    "made anew": (recreated, TableChangedError, "was dropped or recreated"),
    "rolled back": (lambda table: table.rollback(1), TableChangedError, "rolled back to before snapshot 5"),
    "rolled back and grown": (
        lambda table: [table.rollback(1), *(other(each)(table) for each in range(5))],
        TableChangedError,
        "rolled back to before snapshot 5",
    ),
}


@drawn(ENDS, 5)
def test_a_writer_ends(table: Table, between: str, stage: str) -> None:
    act, kind, text = ENDS[between]
    before = set(table.data_files())
    with opened(table, stage) as writer:
        if between.startswith("rolled back") or stage == "committed":
            writer.write(rows(1, 5, value="new"))
            writer.commit()
            before |= set(table.data_files())
        if stage != "opened":
            writer.write(rows(1, 7, value="new"))
        act(table)
        state = None if between == "dropped" else visible(table)
        with pytest.raises(kind, match=text):
            writer.write(rows(1, 7, value="new"))
            writer.commit()
        with pytest.raises(WriterClosedError):
            writer.commit()
    assert set(table.data_files()) - before <= (set() if state is None else live_files(table))
    if state is not None:
        assert visible(table) == state
        write_with(table.writer(), rows(9, value="new"))
        assert visible(table) == behind(table, state, 9)


def live_files(table: Table) -> set[Path]:
    directory, found = TableDirectory.of(table.handle()), set[str]()
    for snapshot in directory.snapshots.list_snapshots():
        lists = [snapshot.base_manifest_list, snapshot.delta_manifest_list]
        entries = directory.manifests.entries(pa.concat_tables(directory.manifests.manifest_lists(lists)))
        found |= set(entries.column("file_name").to_pylist())
    return {path for path in table.data_files() if path.name in found}


def test_two_writers_of_one_commit_user(table: Table) -> None:
    """The second one is told, and nothing of it is left; under its own identifiers too."""
    for given in (None, 3):
        with table.writer().open_sync() as first, table.writer().open_sync() as second:
            first.write(rows(10, value="new"))
            first.commit(None if given is None else given + 2)
            state = visible(table)
            second.write(rows(11, value="new"))
            with pytest.raises(WriterConflictError, match="one writer at a time"):
                second.commit(given)
            with pytest.raises(WriterClosedError):
                second.write(rows(11))
        assert visible(table) == state
        assert set(table.data_files()) == live_files(table)


@pytest.mark.parametrize("before", [1, 2], ids=["it asks for the record", "it goes on without"])
def test_a_second_writer_of_the_user_commits_after_the_look_of_the_first(table: Table, before: int) -> None:
    """A later identifier is published while this one is on its way."""
    with table.writer().open_sync() as first, table.writer().open_sync() as second:
        for identifier in range(before):
            first.write(rows(10, value="new"))
            first.commit(identifier)
        first.write(rows(11, value="new"))
        second.write(rows(12, value="new"))
        second.commit(5)
        state = visible(table)
        with pytest.raises(WriterConflictError, match="commit 5, which is later, is in the table"):
            first.commit(before)
    assert visible(table) == state
    assert set(table.data_files()) == live_files(table)


@pytest.mark.parametrize("others", [0, 3])
def test_the_snapshots_before_are_searched_once_for_a_new_user(tmp_path: Path, others: int) -> None:
    table = key_value_table(tmp_path, keyed=False)
    with table.writer("other").open_sync() as writer:
        for key in range(WINDOW + 2):
            writer.write(rows(key))
            writer.commit()
    file_io, handle = CountingFileIO(), table.handle()
    handle.file_io = file_io
    with stream_write_builder(handle).open_sync() as writer:
        opened = file_io.opened.copy()
        for key in range(others):
            other(key)(table)
        writer.write(rows(100))
        writer.commit()
    old = [f"snapshot-{number}" for number in range(1, WINDOW + 2)]
    # The latest snapshot is read for other reasons too.
    assert [opened[name] for name in old] == [0, 0] + [1] * (WINDOW - 1)
    assert [file_io.opened[name] for name in old] == [opened[name] for name in old]
    assert len(table.rows()) == WINDOW + 3 + others
