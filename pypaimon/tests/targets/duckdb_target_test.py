"""A table of DuckDB holds what a table of Paimon holds: exactly once over restarts, replaced by full states."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from pypaimon.streaming import CorruptTableError, DuckDBTarget, StreamConfigError, TableChangedError, replicate
from pypaimon.streaming.consumers.consumer_manager import Consumer, ConsumerManager
from pypaimon.streaming.errors import TargetError
from pypaimon.streaming.model.position import Phase
from pypaimon.streaming.testing import SmallTable
from support import programs
from support.repository import TESTS
from support.tables.copied_table import (
    KEYS,
    Copying,
    Interrupted,
    Interrupting,
    at,
    batches,
    changed,
    followed,
    held,
    keyed,
    rows_of,
    stream,
)
from support.tables.streamed_table import COLUMNS as COLUMN_TYPES
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Keys that come, change and go."""
    return keyed(tmp_path / "warehouse")


@pytest.fixture
def plain(tmp_path: Path) -> Table:
    """An append table of three commits."""
    return appended(Table(tmp_path / "warehouse", "plain"))


@pytest.fixture
def buckets(tmp_path: Path) -> Table:
    """The same in buckets, each of which comes as a batch where those are small."""
    return appended(Table(tmp_path / "warehouse", "buckets", bucket="2", bucket_key="k"))


def appended(table: Table) -> Table:
    for number in range(3):
        table.commit([number * 10, number * 10 + 1])
    return table


# ---- exactly once ----


@pytest.mark.parametrize("keys", [KEYS, []], ids=["keys", "no keys"])
def test_a_copy_killed_at_any_moment_continues_exactly_once(
    table: Table, buckets: Table, tmp_path: Path, keys: list[str]
) -> None:
    source = table if keys else buckets
    found = batches(stream(source).with_start("earliest").with_catch_up("replay"), batch_bytes=1)
    assert not all(batch.is_last for batch in found)
    connection: Any = Copying(tmp_path / "orders.db")
    target = DuckDBTarget(connection, "copy", keys)
    for batch in found:
        target.apply(batch)
    assert held(connection) == rows_of(source)
    assert len(connection.moments) > len({batch.snapshot_id for batch in found})
    for moment in connection.moments:
        with duckdb.connect(str(moment)) as database:
            again = DuckDBTarget(database, "copy", keys)
            position = again.load_position()
            for batch in found:
                if position is None or batch.plan_after > position:
                    again.apply(batch)
            assert held(database) == rows_of(source), moment


_DIES = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import duckdb
from pathlib import Path
from support.tables.copied_table import KEYS, Copying, Interrupted, Interrupting, followed, held
from support.tables.streamed_table import COLUMNS as COLUMN_TYPES
from support.tables.copied_table import batches, stream
from pypaimon import CatalogFactory
from pypaimon.streaming import DuckDBTarget, replicate
from support.tables.streamed_table import Table

class Dying:
    def __init__(self, connection):
        self._connection = connection
    def execute(self, query, *arguments):
        result = self._connection.execute(query, *arguments)
        if query.startswith("UPDATE") and "_paimon_positions SET" in query and '"snapshot":3' in arguments[0][0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    def __getattr__(self, name):
        return getattr(self._connection, name)

table = object.__new__(Table)
table.catalog, table.name = CatalogFactory.create({"warehouse": sys.argv[2]}), "db.plain"
target = DuckDBTarget(Dying(duckdb.connect(sys.argv[3])), "copy")
for batch in batches(stream(table).with_start("earliest").with_catch_up("replay")):
    target.apply(batch)
"""


def test_killed_in_the_middle_of_a_plan_nothing_is_lost_and_nothing_comes_twice(plain: Table, tmp_path: Path) -> None:
    file = str(tmp_path / "orders.db")
    arguments = [str(TESTS), str(tmp_path / "warehouse"), file]
    killed = programs.run([sys.executable, "-c", _DIES, *arguments], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    with duckdb.connect(file) as database:
        assert held(database) == [(0, "v0"), (1, "v1")]
        followed(database, stream(plain), [])
        assert held(database) == rows_of(plain)


@pytest.mark.parametrize("limits", [{}, {"max_splits": 1}], ids=["whole", "cut"])
@pytest.mark.parametrize("keys", [KEYS, []], ids=["keys", "no keys"])
@pytest.mark.parametrize(
    "start", [None, {"mode": "earliest"}, {"mode": "latest-full"}, {"snapshot_id": 2, "full": True}], ids=str
)
def test_what_the_copy_holds_is_passed_over_or_refused(
    table: Table, plain: Table, start: dict[str, Any] | None, keys: list[str], limits: dict[str, int]
) -> None:
    """A second run that begins before the position: at a state, or at changes that were applied."""
    source, database = table if keys else plain, duckdb.connect()
    followed(database, stream(source).with_limits(**limits), keys)
    source.commit([("-D", 0, "v0"), ("+U", 1, "twice"), ("+I", 30, "v30")] if keys else [30])
    target = DuckDBTarget(database, "copy", keys)
    before = target.load_position()
    assert before is not None
    builder = stream(source).with_limits(**limits).with_catch_up("replay")
    builder.with_start(position=before) if start is None else builder.with_start(**start)
    for batch in batches(builder, batch_bytes=1):
        target.apply(batch)
    after = target.load_position()
    assert after is not None and after > before
    assert held(database) == rows_of(source)


@pytest.mark.parametrize("start", ["snapshot", "position", "consumer"])
def test_a_stream_that_begins_after_rows_that_the_copy_lacks_is_refused(plain: Table, start: str) -> None:
    database = duckdb.connect()
    position = followed(database, stream(plain), []).load_position()
    before = held(database)
    plain.commit_each((40, 41))
    target = DuckDBTarget(database, "copy")
    builder = stream(plain).with_start(snapshot_id=plain.latest())
    if start == "position":
        builder = stream(plain).with_start(position=at(plain, plain.latest()))
    elif start == "consumer":
        ConsumerManager(plain.handle().file_io, str(plain.path)).reset_consumer("etl", Consumer(plain.latest()))
        builder = stream(plain).with_consumer_id("etl")
    found = batches(builder)
    assert found
    for batch in found:
        with pytest.raises(
            StreamConfigError, match=r"would be missing.*with_start\(position=target\.load_position\(\)\)"
        ):
            target.apply(batch)
    assert (held(database), target.load_position()) == (before, position)
    followed(database, stream(plain), [])
    assert held(database) == rows_of(plain)


def test_snapshots_without_rows_for_the_stream_are_not_a_gap(plain: Table) -> None:
    """Snapshots that are passed over, plans whose rows the filter drops, and polls that fail in between."""
    plain.commit([1, 100])
    builder = (
        stream(plain).with_catch_up("replay").with_filter(stream(plain).new_predicate_builder().is_in("k", [0, 77]))
    )
    database = duckdb.connect()
    target = followed(database, builder, [])
    position = target.load_position()
    assert position is not None
    with builder.with_start(position=position).with_end(snapshot_id=8).open_sync() as opened:
        for values in ([1, 100], [200], [1, 100]):
            plain.commit(values)
        hidden = plain.snapshot_path(5).rename(plain.path / "hidden")
        plain.snapshot_path(5).write_text("{")
        with pytest.raises(CorruptTableError):
            next(opened)
        hidden.replace(plain.snapshot_path(5))
        plain.commit([77])
        for batch in opened:
            assert batch.plan_before == position
            target.apply(batch)
    assert held(database) == [(0, "v0"), (77, "v77")]


def test_a_position_inside_a_snapshot_is_gone_on_from(plain: Table) -> None:
    builder = stream(plain).with_limits(max_splits=1)
    parts = batches(builder)
    assert [part.plan_after.phase for part in parts] == [Phase.FULL, Phase.FULL, Phase.FOLLOW]
    for applied in range(1, 4):
        database = duckdb.connect()
        target = DuckDBTarget(database, "copy")
        for batch in [*parts[:applied], *parts]:
            target.apply(batch)
        assert held(database) == rows_of(plain)


def test_a_whole_state_replaces_a_part_of_the_same(plain: Table) -> None:
    database = duckdb.connect()
    target = DuckDBTarget(database, "copy")
    for batch in [*batches(stream(plain).with_limits(max_splits=1))[:2], *batches(stream(plain))]:
        target.apply(batch)
    assert held(database) == rows_of(plain)


def test_changes_of_which_the_copy_holds_a_part_are_refused(table: Table) -> None:
    """A net plan tells nothing of a key that is at its end what it was at its beginning."""
    database = duckdb.connect()
    target = DuckDBTarget(database, "copy", KEYS)
    for batch in batches(stream(table).with_start("earliest").with_catch_up("replay"))[:2]:
        target.apply(batch)
    net = batches(stream(table).with_start(position=at(table, 2)).with_catch_up("net"))
    assert [(batch.kind.value, batch.snapshot_id) for batch in net] == [("net", 3)]
    table.commit([("+I", 40, "later")])
    later = batches(stream(table).with_start(position=at(table, 4)))
    for batch in [*net, *later]:
        with pytest.raises(StreamConfigError, match=r"Open (the|a new) stream with with_start\(position="):
            target.apply(batch)
    followed(database, stream(table))
    assert held(database) == rows_of(table)


def test_a_part_of_a_state_is_refused_where_its_beginning_is_not(plain: Table) -> None:
    _, inside, _ = batches(stream(plain).with_limits(max_splits=1))
    database = duckdb.connect()
    target = DuckDBTarget(database, "copy")
    for _ in range(2):
        with pytest.raises(StreamConfigError, match="whose beginning the target does not hold"):
            target.apply(inside)
        target.apply(batches(stream(plain).with_start("earliest").with_catch_up("replay"))[0])
    assert held(database) == [(0, "v0"), (1, "v1")]


def test_another_table_and_another_history_are_refused(table: Table, tmp_path: Path) -> None:
    database = duckdb.connect()
    target = followed(database, stream(table))
    with pytest.raises(StreamConfigError, match="target of its own"):
        target.apply(batches(stream(keyed(tmp_path / "other")))[0])
    table.rollback(2)
    table.commit([("+I", 50, "of another history")])
    later = batches(stream(table).with_start("earliest").with_catch_up("replay"))
    with pytest.raises(TableChangedError, match="rolled back"):
        for batch in later:
            target.apply(batch)
    assert (2, "again") in held(database)


# ---- errors ----


def test_the_error_of_a_constraint_is_seen_and_takes_back_the_plan(table: Table) -> None:
    database = duckdb.connect()
    database.execute("CREATE TABLE copy (k BIGINT, v VARCHAR CHECK (v <> 'again'))")
    target = DuckDBTarget(database, "copy", KEYS)
    found = batches(stream(table).with_start("earliest").with_catch_up("replay"), batch_bytes=1)
    with pytest.raises(TargetError, match=r"(?i)constraint.*continues"):
        for batch in found:
            target.apply(batch)
    position = target.load_position()
    assert position is not None and position.snapshot == 3
    assert (4, "v4") in held(database), "nothing of the plan is kept"
    database.execute("BEGIN")  # no other transaction is open


class FullDisk:
    """A connection to a full disk, on which cleaning up fails too.

    Args:
        fails_at: How the first statement begins that does not get through; all later ones fail with another error.
    """

    def __init__(self, fails_at: str) -> None:
        self._connection = duckdb.connect()
        self._fails_at = fails_at
        self._full = False

    def _check(self) -> None:
        if self._full:
            raise duckdb.FatalException("the database has been invalidated")

    def execute(self, query: str, *arguments: Any) -> Any:
        self._check()
        if query.startswith(self._fails_at):
            self._full = True
            raise duckdb.IOException("No space left on device")
        return self._connection.execute(query, *arguments)

    def unregister(self, name: str) -> None:
        self._check()
        self._connection.unregister(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.mark.parametrize("fails_at", ["CREATE TABLE IF NOT EXISTS", "INSERT INTO", "UPDATE", "COMMIT"])
def test_an_error_of_the_cleanup_does_not_hide_the_first_one(plain: Table, fails_at: str) -> None:
    connection: Any = FullDisk("nothing")
    target = DuckDBTarget(connection, "copy")
    connection._fails_at = fails_at
    with pytest.raises(TargetError, match="No space left on device"):
        target.apply(batches(stream(plain).with_start("earliest").with_catch_up("replay"))[0])


def test_an_error_of_the_cleanup_does_not_hide_that_of_taking_over_a_position(plain: Table) -> None:
    connection: Any = FullDisk("nothing")
    connection.execute("CREATE SCHEMA other")
    connection.execute("CREATE TABLE _paimon_positions (name VARCHAR PRIMARY KEY, position VARCHAR, columns VARCHAR)")
    connection.execute("INSERT INTO _paimon_positions VALUES ('other.copy', '{}', NULL)")
    connection._fails_at = "DELETE"
    with pytest.raises(TargetError, match="No space left on device"):
        DuckDBTarget(connection, "other.copy")


def test_what_comes_after_an_error_is_refused_until_the_plan_came_again(table: Table) -> None:
    database = duckdb.connect()
    database.execute("CREATE TABLE copy (k BIGINT, v VARCHAR CHECK (v <> 'changed'))")
    target = DuckDBTarget(database, "copy", KEYS)
    found = batches(stream(table).with_start("earliest").with_catch_up("replay"), batch_bytes=1)
    failed = next(number for number, batch in enumerate(found) if batch.snapshot_id == 2)
    for batch in found[:failed]:
        target.apply(batch)
    with pytest.raises(TargetError, match=r"(?i)constraint.*continues"):
        for batch in found[failed:]:
            target.apply(batch)
    later = [batch for batch in found if batch.snapshot_id == 3 or (batch.snapshot_id == 2 and not batch.is_first)]
    for batch in later:
        with pytest.raises(StreamConfigError, match="was not applied"):
            target.apply(batch)
    database.execute("ALTER TABLE copy RENAME TO strict")
    database.execute("CREATE TABLE copy AS SELECT * FROM strict")
    builder = stream(table)
    position = target.load_position()
    assert position is not None
    for batch in batches(builder.with_start(position=position), batch_bytes=1):
        target.apply(batch)
    assert held(database) == rows_of(table)


@pytest.mark.parametrize("done", [False, True], ids=["before it", "after it"])
def test_an_interrupted_commit_is_gone_on_from(plain: Table, done: bool) -> None:
    connection: Any = Interrupting(duckdb.connect(), done)
    target = DuckDBTarget(connection, "copy")
    builder = stream(plain).with_start("earliest").with_catch_up("replay")
    with pytest.raises(Interrupted):
        for batch in batches(builder):
            target.apply(batch)
    position = target.load_position()
    assert (position is not None) is done
    if position is not None:
        builder.with_start(position=position)
    for batch in batches(builder):
        target.apply(batch)
    assert held(connection) == rows_of(plain)


def test_an_unfinished_plan_is_rolled_back(buckets: Table) -> None:
    """Its stream failed, and the next one begins with the same plan: without keys its rows must not come twice."""
    found = batches(stream(buckets).with_start("earliest").with_catch_up("replay"), batch_bytes=1)
    left = next(number for number, batch in enumerate(found) if not batch.is_last)
    database = duckdb.connect()
    target = DuckDBTarget(database, "copy")
    for batch in [*found[: left + 1], *found[left:]]:
        target.apply(batch)
    assert held(database) == rows_of(buckets)


def test_a_copy_that_is_gone_is_filled_from_the_start(table: Table) -> None:
    database = duckdb.connect()
    followed(database, stream(table))
    database.execute("DROP TABLE copy")
    assert DuckDBTarget(database, "copy", KEYS).load_position() is None
    followed(database, stream(table))
    assert held(database) == rows_of(table)


def test_keys_that_are_null_are_keys(tmp_path: Path) -> None:
    source = Table(tmp_path / "warehouse")
    source.commit([(1, "a"), (2, "b")])
    database = duckdb.connect()
    for value in ("c", "d"):
        source.write(pa.table({"k": [None], "v": [value]}, schema=COLUMN_TYPES))
        followed(database, stream(source))
    assert held(database) == [(1, "a"), (2, "b"), (None, "d")]


def test_a_first_plan_of_more_rows_than_a_row_group_has_is_found_again(plain: Table) -> None:
    """In the transaction that makes the table."""
    count = 130_000
    plain.write(pa.table({"k": range(100, 100 + count), "v": ["v"] * count}, schema=COLUMN_TYPES))
    database = duckdb.connect()
    followed(database, stream(plain))
    plain.write(pa.table({"k": range(100, 200), "v": ["later"] * 100}, schema=COLUMN_TYPES))
    followed(database, stream(plain))
    found = database.execute(
        "SELECT count(*), min(k), max(k) FROM copy WHERE k >= 100 GROUP BY v ORDER BY v"
    ).fetchall()
    assert found == [(100, 100, 199), (count - 100, 200, 99 + count)]


def test_what_others_have_saved_meanwhile_is_not_overwritten(plain: Table) -> None:
    database = duckdb.connect()
    target = followed(database, stream(plain), [])
    plain.commit([30])
    other = followed(database.cursor(), stream(plain), [])
    before = held(database)
    found = batches(stream(plain).with_start(position=at(plain, 4)))
    with pytest.raises(StreamConfigError, match="others write to it"):
        target.apply(found[0])
    assert (held(database), target.load_position()) == (before, other.load_position())
    replicate(stream(plain), target)
    assert held(database) == rows_of(plain)


def test_targets_of_one_table_take_turns(plain: Table) -> None:
    """What one has saved, the other one finds where a stream begins."""
    database = duckdb.connect()
    targets = [DuckDBTarget(each, "copy") for each in (database, database.cursor())]
    for number in range(4):
        plain.commit([100 + number])
        replicate(stream(plain), targets[number % 2])
    assert held(database) == rows_of(plain)


def test_a_table_that_is_dropped_under_way_is_an_error_and_then_filled_again(table: Table) -> None:
    database = duckdb.connect()
    target = followed(database, stream(table))
    database.execute("DROP TABLE copy")
    table.commit([("+U", 1, "later")])
    with pytest.raises(TargetError, match=r"DuckDB, table copy: .*drop it"):
        for batch in batches(stream(table).with_start(position=at(table, 4))):
            target.apply(batch)
    assert target.load_position() is None
    replicate(stream(table), target)
    assert held(database) == rows_of(table)


def test_several_columns_are_the_key(tmp_path: Path) -> None:
    source = SmallTable(tmp_path, keys=("id", "number"))
    source.commit(*({"id": key, "number": other, "name": "a"} for key in range(3) for other in range(3)))
    database = duckdb.connect()
    target = DuckDBTarget(database, "copy", ["id", "number"])
    replicate(source.builder(), target)
    old, new = ({"id": 1, "number": 2, "name": name} for name in ("a", "b"))
    source.commit(("-U", old), ("+U", new), ("-D", {"id": 2, "number": 1, "name": "a"}))
    source.commit(("+U", {"id": 0, "number": 0, "name": "c"}))
    replicate(source.builder(), target)
    found = database.sql("SELECT * FROM copy").to_arrow_table().to_pylist()
    assert sorted(found, key=str) == sorted(source.rows(), key=str)
    assert len(found) == 8


# ---- full states ----


@pytest.mark.parametrize("limits", [{}, {"max_splits": 1}], ids=["whole", "cut"])
def test_a_full_state_in_the_middle_replaces_what_the_copy_holds(table: Table, limits: dict[str, int]) -> None:
    database = duckdb.connect()
    builder = stream(table).with_limits(**limits).with_on_expired("full")
    followed(database, builder)
    changed(table)
    followed(database, stream(table).with_limits(**limits).with_on_expired("full"), batch_bytes=1)
    assert held(database) == rows_of(table)


def test_a_full_state_that_is_empty_empties_the_copy(table: Table) -> None:
    database = duckdb.connect()
    followed(database, stream(table))
    for _ in range(2):
        table.commit([("-D", key, "") for key in range(10)])
    table.expire(table.latest())
    target = followed(database, stream(table).with_on_expired("full"))
    assert held(database) == []
    position = target.load_position()
    assert position is not None and position.snapshot == table.latest() + 1


def test_a_copy_killed_while_it_is_replaced_leaves_no_half_of_it(table: Table, tmp_path: Path) -> None:
    file = tmp_path / "orders.db"
    with duckdb.connect(str(file)) as database:
        followed(database, stream(table))
    held_before = rows_of(table)
    changed(table)
    builder = stream(table).with_limits(max_splits=1).with_on_expired("full").with_start(position=at(table, 4))
    found = batches(builder, batch_bytes=1)
    assert sum(batch.is_last for batch in found) == 2
    connection: Any = Copying(file)
    target = DuckDBTarget(connection, "copy", KEYS)
    for batch in found:
        target.apply(batch)
    for moment in connection.moments:
        with duckdb.connect(str(moment)) as database:
            position = DuckDBTarget(database, "copy", KEYS).load_position()
            assert position is not None
            assert position.snapshot == table.latest() or held(database) in (held_before, rows_of(table))
            followed(database, stream(table).with_on_expired("full"))
            assert held(database) == rows_of(table)
