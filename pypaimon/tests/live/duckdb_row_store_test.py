"""Live tables that are too large for memory lie on disk, and are the same to whoever asks."""

from __future__ import annotations

import gc
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import StreamConfigError
from pypaimon.streaming.testing import SmallTable
from pypaimon.streaming.testing.table_changes import TableChanges
from support.samples import SOAK, seeded
from support.tables.handles import batch_read
from support.tables.live_tables import (
    KEYS,
    HeldClock,
    assert_ended,
    check,
    columns_of,
    keyed_changes,
    live_threads,
    often,
)

pytestmark = [pytest.mark.slow, pytest.mark.soak]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where rows go; nothing is left there."""
    place = tmp_path / "place"
    place.mkdir()
    before = live_threads()
    yield place
    gc.collect()
    assert_ended(thread for thread in live_threads() if thread not in before)
    gc.collect()
    assert not [*place.iterdir()]


@pytest.mark.parametrize("memory_limit_bytes", [0, 1_000])
def test_it_is_a_batch_read_at_each_snapshot(tmp_path: Path, place: Path, memory_limit_bytes: int) -> None:
    """With the greater limit it begins in memory."""
    random = seeded(f"live table on disk {memory_limit_bytes}")
    table = SmallTable(tmp_path)
    changes = TableChanges(table, True, random)
    changes.commit()
    with often(table.table).open_live_sync(memory_limit_bytes=memory_limit_bytes, directory=place) as live:
        for _ in range(12 if SOAK else 4):
            check(live, table.table, batch_read(table.table))
            if random.random() < 0.3:
                changes.alter()
            changes.commit()
            latest = table.table.snapshot_manager().get_latest_snapshot().id
            live.wait_for(latest)
            assert live.snapshot_id == latest
        assert [*place.iterdir()] and live.nbytes > 0
        changes.empty()
        live.wait_for(table.table.snapshot_manager().get_latest_snapshot().id)
        check(live, table.table, [])


@pytest.mark.parametrize("kind", [kind for kind in KEYS if kind != "double"])
def test_keys_of_any_type(tmp_path: Path, place: Path, kind: str) -> None:
    random = seeded(f"live keys on disk {kind}")
    table = SmallTable(tmp_path, keys=tuple(KEYS[kind][0]), columns=columns_of(kind))
    with often(table.table).open_live_sync(memory_limit_bytes=0, directory=place) as live:
        for step in range(4 if SOAK else 2):
            live.wait_for(table.commit(*keyed_changes(kind, step, random)))
            check(live, table.table, batch_read(table.table))


def test_many_rows_are_asked_for_in_order(tmp_path: Path, place: Path) -> None:
    table = SmallTable(tmp_path)
    table.commit(*({"id": number, "name": str(number)} for number in range(3_000)))
    with often(table.table).open_live_sync(memory_limit_bytes=0, directory=place) as live:
        asked = [*range(4_000, -1, -1), None, 7, 7]
        wanted = [None if number is None or number >= 3_000 else str(number) for number in asked]
        assert live.get_many(pa.array(asked))["name"].to_pylist() == wanted
        assert live.get(2**62) is None
        with pytest.raises(StreamConfigError, match="the key of the table is"):
            live.get("x")


def test_columns_change_while_others_read(tmp_path: Path, place: Path) -> None:
    table = SmallTable(tmp_path)
    table.commit({"id": 1}, {"id": 2})
    ended = threading.Event()
    failed: list[BaseException] = []
    with often(table.table).open_live_sync(memory_limit_bytes=0, directory=place) as live:

        def read(ask: Callable[[], Any]) -> None:
            try:
                while not ended.is_set():
                    ask()
            except BaseException as error:  # noqa: BLE001 - shown below
                failed.append(error)

        asks = (live.to_arrow, lambda: live.get_many([1, 2]), lambda: live.get(1))
        threads = [threading.Thread(target=read, args=(ask,)) for ask in asks]
        for thread in threads:
            thread.start()
        with live.duckdb() as before:
            for step in range(6 if SOAK else 3):
                old, new = (f"renamed_{step - 1}" if step else "name"), f"renamed_{step}"
                table.alter(SchemaChange.rename_column(old, new))
                table.alter(SchemaChange.add_column(f"added_{step}", AtomicType("STRING")))
                live.wait_for(table.commit({"id": step + 3, new: "x", f"added_{step}": "y"}))
                assert live.get(step + 3)[new] == "x"
            assert before.execute("SELECT id, name FROM live ORDER BY id").fetchall() == [(1, None), (2, None)]
        ended.set()
        for thread in threads:
            thread.join()
    assert not failed


def test_a_state_in_the_middle_replaces_all_rows(tmp_path: Path, place: Path) -> None:
    table = SmallTable(tmp_path)
    table.commit({"id": 1}, {"id": 2})
    clock = HeldClock()
    builder = often(table.table, clock).with_on_expired("full")
    with builder.open_live_sync(memory_limit_bytes=0, directory=place) as live:
        clock.hold()
        table.commit(("-D", {"id": 1}))
        table.commit({"id": 3})
        table.expire()
        clock.let_go()
        live.wait_for(3)
        check(live, table.table, batch_read(table.table))
        assert len(live) == 2


def test_what_cannot_be_is_refused(tmp_path: Path, place: Path) -> None:
    table = SmallTable(tmp_path, keys=("a",), columns=pa.schema([pa.field("a", pa.float64(), nullable=False)]))
    builder = often(table.table)
    table.commit({"a": 0.5})
    with pytest.raises(StreamConfigError, match=r"takes the keys 0\.0 and -0\.0 for one"):
        builder.open_live_sync(memory_limit_bytes=0, directory=place)
    with pytest.raises(StreamConfigError, match="memory_limit"):
        builder.open_live_sync(memory_limit_bytes=-1)
    with pytest.raises(StreamConfigError, match="is not a directory"):
        builder.open_live_sync(directory=place / "nowhere")


def test_a_key_column_gets_another_name(tmp_path: Path, place: Path) -> None:
    table = SmallTable(tmp_path)
    table.commit({"id": 1, "name": "a"}, {"id": 2, "name": "b"})
    with often(table.table).open_live_sync(memory_limit_bytes=0, directory=place) as live:
        table.alter(SchemaChange.rename_column("id", "number_of_it"))
        live.wait_for(table.commit({"number_of_it": 2, "name": "c"}, {"number_of_it": 3, "name": "d"}))
        check(live, table.table, batch_read(table.table))
        assert live.get({"number_of_it": 2})["name"] == "c" and len(live) == 3
        with pytest.raises(StreamConfigError, match="the key of the table is"):
            live.get({"id": 2})


def test_values_are_cast_as_a_read_casts_them(tmp_path: Path, place: Path) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("number", pa.float64())])
    table = SmallTable(tmp_path, columns=columns)
    table.commit(*({"id": number, "number": number + 0.7} for number in range(70_000)))
    with often(table.table).open_live_sync(memory_limit_bytes=0, directory=place) as live:
        table.alter(SchemaChange.update_column_type("number", AtomicType("INT")))
        live.wait_for(table.commit({"id": 2, "number": 9}, ("-D", {"id": 3})))
        assert live.to_arrow().sort_by("id")["number"].to_pylist() == [0, 1, 9, *range(4, 70_000)]
        assert [live.get(key) for key in (1, 2, 3)] == [{"id": 1, "number": 1}, {"id": 2, "number": 9}, None]


def test_a_connection_outlives_the_live_table_and_changes_nothing(tmp_path: Path, place: Path) -> None:
    table = SmallTable(tmp_path)
    table.commit(*({"id": number, "name": "x" * 50} for number in range(5_000)))
    with often(table.table).open_live_sync(memory_limit_bytes=0, directory=place) as live:
        connection, other = live.duckdb("_live_rows"), live.duckdb()
        with pytest.raises(duckdb.Error, match="read-only mode"):
            other.execute("DELETE FROM rows.main._live_rows")
        live.wait_for(table.commit({"id": 5_000}))
        assert len(live) == 5_001
    del live, other
    gc.collect()
    connection.execute("SET memory_limit = '40MB'")
    # More than fits into memory: it goes into the directory.
    query = (
        "SELECT count(*), max(length) FROM (SELECT a.*, length(a.name || b.id) AS length, "
        "row_number() OVER (ORDER BY a.name, b.id) AS number FROM _live_rows a, range(200) b(id))"
    )
    assert connection.execute(query).fetchone() == (1_000_000, 53)
    connection.close()
    del connection


FORKING = """
import os, sys, weakref
from pypaimon import CatalogFactory
from pypaimon.streaming import stream_read_builder

table = CatalogFactory.create({"warehouse": sys.argv[1]}).get_table("db.small")
live = stream_read_builder(table).open_live_sync(memory_limit_bytes=0, directory=sys.argv[2])
child = os.fork()
if child == 0:
    # What ends at exit; other hooks, those of pyarrow, hang in a process that was forked.
    weakref.finalize._exitfunc()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert len(os.listdir(sys.argv[2])) == 1
print(live.get(1)["name"], len(live), live.duckdb().execute("SELECT count(*) FROM live").fetchone())
"""


def test_the_end_of_a_forked_process_leaves_the_rows_alone_and_that_of_its_own_does_not(
    tmp_path: Path, place: Path
) -> None:
    SmallTable(tmp_path).commit({"id": 1, "name": "a"})
    command = [sys.executable, "-W", "ignore", "-c", FORKING, str(tmp_path), str(place)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("a 1 (1,)\n", "", 0)
    assert not [*place.iterdir()]


async def test_ending_it_does_not_hold_up_the_loop(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = SmallTable(tmp_path)
    table.commit({"id": 1})
    removed: queue.SimpleQueue[int] = queue.SimpleQueue()
    remove = shutil.rmtree

    def noted(*args: Any, **options: Any) -> None:
        remove(*args, **options)
        removed.put(threading.get_ident())

    live = await often(table.table).with_end(latest=True).open_live(memory_limit_bytes=0, directory=place)
    with pytest.raises(StreamConfigError, match="has ended"):
        await live.wait_for(99)
    for thread in live_threads():
        thread.join(60)
    monkeypatch.setattr(shutil, "rmtree", noted)
    await live.aclose()
    assert removed.get(timeout=60) != threading.get_ident()
