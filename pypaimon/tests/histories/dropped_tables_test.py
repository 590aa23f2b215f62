"""A drop deletes one file after the other: what each reader says in between, in every order of files."""

from __future__ import annotations

import io
import json
import random
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pypaimon.streaming import (
    ConsumerManager,
    CorruptTableError,
    DictTarget,
    OpenTableError,
    PaimonStreamError,
    Position,
    PositionBeyondLatestError,
    PositionExpiredError,
    StreamConfigError,
    StreamReadBuilder,
    TableChangedError,
    replicate,
)
from pypaimon.streaming.cli.app import run
from pypaimon.streaming.consumers.consumer_manager import Consumer
from pypaimon.streaming.feeds.feed import Feed
from pypaimon.streaming.feeds.feed_state import Share
from support.tables.handles import catalog_with_database
from support.tables.streamed_table import KEYED, Table, available, keys, sorted_rows
from support.waits import until

pytestmark = pytest.mark.slow

COMMITS = 3
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
OTHER = 0
"""A key of the first and the last snapshot, before their own from another file, and left out of what readers give."""
LAST_INSIDE = COMMITS - 0.5
POLLS = 17
"""A reader that finds nothing checks its position within as many."""

T = TypeVar("T")
Order = Callable[[list[Path]], list[Path]]


def first(name: str) -> Order:
    """The files of a directory, and then the others, as an object store lists them."""
    return lambda files: sorted(files, key=lambda path: (path.parent.name != name, path))


ORDERS: dict[str, Order] = {
    "as listed": sorted,
    "reversed": lambda files: sorted(files, reverse=True),
    "snapshots": first("snapshot"),
    "latest snapshot": lambda files: sorted(files, key=lambda path: path.name != f"snapshot-{COMMITS}"),
    "schemas": first("schema"),
    "shuffled": lambda files: random.Random(1).sample(sorted(files), len(files)),
}


class DroppedTable:
    """A table whose files go one after the other.

    Attributes:
        path: Its directory.
        positions: The position after each snapshot, from 0; inside snapshot 1, before key 1, is 0.5, and inside the
            last one LAST_INSIDE.
    """

    def __init__(self, original: Table, positions: dict[float, Position], path: Path) -> None:
        self._original = original
        self.path, self.positions = path, positions
        shutil.copytree(original.path, path)

    def handle(self) -> Any:
        """A handle that was loaded before."""
        handle = self._original.handle()
        handle.table_path = str(self.path)
        return handle

    def builder(self, after: float | None) -> StreamReadBuilder:
        """Of a stream after a snapshot; None: from the state."""
        builder = StreamReadBuilder(self.handle()).with_poll_interval_ms(1).with_catch_up("replay")
        if after is None:
            return builder.with_start("latest-full")
        return builder.with_start(position=self.positions[after])

    def allowed(self, read: float, *, is_given: bool) -> list[Callable[[Any], bool]]:
        """What a reader may say that has read the table up to a snapshot, or was given one.

        A reader of the state that knows that the table had snapshots has read 0.5 of them.

        As long as a schema is left, a lost snapshot looks like an expired one or one that was rolled back, and a lost
        file like damage, of which the reader says that it may be part of a drop.
        """
        left = [number for number in range(1, COMMITS + 1) if (self.path / f"snapshot/snapshot-{number}").exists()]
        has_schema = (self.path / "schema/schema-0").exists()
        allowed: list[Callable[[Any], bool]] = [lambda outcome: isinstance(outcome, TableChangedError)]
        if not has_schema:
            return allowed
        if is_given:
            allowed.append(lambda outcome: isinstance(outcome, PositionBeyondLatestError) and "drop" in str(outcome))
        if not read and not left:
            # Nothing shows that there ever was any.
            allowed.append(lambda outcome: outcome == [])
        if left and (read <= left[-1] or is_given):
            allowed.append(lambda outcome: isinstance(outcome, CorruptTableError) and "drop" in str(outcome))
            wanted = list(range(int(read) + 1, left[-1] + 1))
            allowed.append(lambda outcome: outcome == wanted)
            if len(left) < left[-1]:
                allowed.append(lambda outcome: isinstance(outcome, PositionExpiredError))
        return allowed


Ask = Callable[[], list[int]]
"""Reads what is there, from a position or the state on: its keys; none if the reader waits for more."""


def _scanned(builder: StreamReadBuilder) -> list[int]:
    with builder.new_streaming_scan() as scan:
        return _polled(builder, scan)


def _polled(builder: StreamReadBuilder, scan: Any) -> list[int]:
    return [key for _ in range(POLLS) for key in keys(builder.new_read(), available(scan)) if key != OTHER]


def _held(table: DroppedTable, after: int) -> Ask:
    """A scan that was open before the drop."""
    builder = table.builder(after)
    scan = builder.new_streaming_scan()
    if after == COMMITS:
        assert scan.plan() is None
    return lambda: _polled(builder, scan)


def _ended(builder: Any) -> list[int]:
    with builder.open_sync() as stream:
        return [key for batch in stream for key in batch.rows["k"].to_pylist() if key != OTHER]


def _copy(table: DroppedTable, after: int) -> Ask:
    """A copy that has come to a snapshot."""
    target = DictTarget()
    builder = StreamReadBuilder(table.handle()).with_start(snapshot_id=after, full=True)
    replicate(builder.with_end(snapshot_id=after), target)

    def ask() -> list[int]:
        replicate(StreamReadBuilder(table.handle()).with_end(latest=True), target)
        return [key for key in sorted(target.rows) if key > after]

    return ask


def _live(table: DroppedTable) -> list[int]:
    with table.builder(None).open_live_sync() as live:
        return sorted(key for key in live.to_arrow()["k"].to_pylist() if key != OTHER)


def _saved_live(table: DroppedTable) -> Ask:
    """A live table with saved rows."""
    file = table.path.parent / "saved"
    with table.builder(None).open_live_sync(save_to=file) as live:
        live.save()

    def ask() -> list[int]:
        with table.builder(None).open_live_sync(save_to=file) as live:
            return sorted(key for key in live.to_arrow()["k"].to_pylist() if key != OTHER)

    return ask


def _feed(table: DroppedTable, after: float) -> Feed:
    return Feed.of(table.builder(after).with_end(latest=True), "Feed")


def _made_feed(table: DroppedTable, after: float) -> Ask:
    """A feed that was made before the drop."""
    feed = _feed(table, after)
    return lambda: _fed(feed)


def _fed(feed: Feed) -> list[int]:
    reader = feed.open(Share(), feed.begin, 1, False)
    try:
        return [key for rows, _ in reader for key in rows["k"].to_pylist() if key != OTHER]
    finally:
        reader.close()


def _printed(table: DroppedTable) -> list[int]:
    """What `paimon-stream tail` prints of the state."""
    out = _run("tail", "db.t", "--until-latest", "--format", "json", "--warehouse", str(table.path.parent.parent))
    return sorted(key for key in (json.loads(line)["k"] for line in out.splitlines()) if key != OTHER)


def _copied(table: DroppedTable) -> list[int]:
    """What `paimon-stream copy` copies of the state."""
    target = tempfile.mkdtemp(dir=table.path.parent.parent)
    _run("copy", "db.t", "db.t", "--create", "--target-warehouse", target, "--warehouse", str(table.path.parent.parent))
    handle = catalog_with_database(Path(target), "db").get_table("db.t")
    return [key for key, *_ in sorted_rows(handle) if key != OTHER]


def _spark(table: DroppedTable, after: float) -> Any:
    """A query of Spark, driven without Spark, and the offset after a snapshot."""
    from pypaimon.spark.read.offset import Offset
    from support.spark.driver import Driver, through_json

    where = {"warehouse": str(table.path.parent.parent), "table": "db.t", "continuous.discovery-interval": "1 ms"}
    position = table.positions[after]
    return Driver(where), through_json(Offset(position.table, position, table.positions[1]).to_json())


def _sparked(driver: Any, offset: Any) -> list[int]:
    found = []
    for _ in range(POLLS):
        end = driver.latest(offset)
        found += driver.rows(offset, end)
        offset = end
    return sorted(key for _, key, _ in found if key != OTHER)


def _spark_query(table: DroppedTable, after: float) -> Ask:
    """A query that ran before the drop."""
    driver, offset = _spark(table, after)
    return lambda: _sparked(driver, offset)


def _spark_restarted(table: DroppedTable, after: float) -> Ask:
    return lambda: _named(lambda: _sparked(*_spark(table, after)))


def _spark_batch(table: DroppedTable) -> list[int]:
    """A micro-batch that was logged before, planned and read again."""

    def read() -> list[int]:
        driver, begin = _spark(table, 1)
        rows = driver.rows(begin, _spark(table, COMMITS)[1])
        return sorted(key for _, key, _ in rows if key != OTHER)

    return _named(read)


def _spark_state(table: DroppedTable) -> list[int]:
    """What `spark.read` reads."""
    from support.spark.driver import batch_tasks

    where = {"warehouse": str(table.path.parent.parent), "table": "db.t", "mode": "rows"}
    found = _named(lambda: [key for task in batch_tasks(where) for rows in task for key in rows["k"].to_pylist()])
    return sorted(key for key in found if key != OTHER)


def _named(ask: Callable[[], T]) -> T:
    """What a reader says that knows the table by its name alone."""
    try:
        return ask()
    except (OpenTableError, StreamConfigError) as error:
        raise (TableChangedError(str(error)) if "it was or is being dropped" in str(error) else error) from None


def _run(*arguments: str) -> str:
    def printed() -> str:
        out = io.StringIO()
        with redirect_stdout(out):
            assert run((*arguments, "--debug")) == 0
        return out.getvalue()

    return _named(printed)


READERS: dict[str, tuple[float, Callable[[DroppedTable], Ask]]] = {
    "scan that was open, at the end": (COMMITS, lambda table: _held(table, COMMITS)),
    "scan that was open, behind": (1, lambda table: _held(table, 1)),
    "scan, at the end": (COMMITS, lambda table: lambda: _scanned(table.builder(COMMITS))),
    "scan, inside": (0.5, lambda table: lambda: _scanned(table.builder(0.5))),
    "scan, inside the last snapshot": (LAST_INSIDE, lambda table: lambda: _scanned(table.builder(LAST_INSIDE))),
    "scan, behind": (1, lambda table: lambda: _scanned(table.builder(1))),
    "stream with an end, at the end": (
        COMMITS,
        lambda table: lambda: _ended(table.builder(COMMITS).with_end(latest=True)),
    ),
    "stream with an end, inside": (0.5, lambda table: lambda: _ended(table.builder(0.5).with_end(latest=True))),
    "stream with an end, inside the last snapshot": (
        LAST_INSIDE,
        lambda table: lambda: _ended(table.builder(LAST_INSIDE).with_end(latest=True)),
    ),
    "stream with an end, behind": (1, lambda table: lambda: _ended(table.builder(1).with_end(latest=True))),
    "stream of the state": (0, lambda table: lambda: sorted(_ended(table.builder(None).with_end(latest=True)))),
    "live table": (0, lambda table: lambda: _live(table)),
    "live table with saved rows": (0.5, _saved_live),
    "copy, at the end": (COMMITS, lambda table: _copy(table, COMMITS)),
    "copy, behind": (1, lambda table: _copy(table, 1)),
    "feed, behind": (1, lambda table: lambda: _fed(_feed(table, 1))),
    "feed, inside": (0.5, lambda table: lambda: _fed(_feed(table, 0.5))),
    "feed that was made, behind": (1, lambda table: _made_feed(table, 1)),
    "printed": (0, lambda table: lambda: _printed(table)),
    "copied by the program": (0, lambda table: lambda: _copied(table)),
    "query of Spark, at the end": (COMMITS, lambda table: _spark_query(table, COMMITS)),
    "query of Spark, behind": (1, lambda table: _spark_query(table, 1)),
    "query of Spark, restarted": (1, lambda table: _spark_restarted(table, 1)),
    "batch of Spark, again": (1, lambda table: lambda: _spark_batch(table)),
    "state, by Spark": (0, lambda table: lambda: _spark_state(table)),
    "changes": (1, lambda table: lambda: _ended(StreamReadBuilder(table.handle()).with_range(1, COMMITS))),
}
"""Each with the snapshot that it has read last, and what makes one before the drop."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Table, dict[float, Position]]:
    """A table with a snapshot for each key from 1 on, and the position after each."""
    table = Table(tmp_path_factory.mktemp("dropped"), columns=KEYED, primary_keys=["k"], bucket="3")
    table.commit([OTHER, 1])
    table.commit_each(range(2, COMMITS))
    table.commit([OTHER, COMMITS])
    builder = table.builder().with_start("earliest").with_catch_up("replay").with_limits(max_splits=1)
    with builder.new_streaming_scan() as scan:
        plans = available(scan)
    assert keys(builder.new_read(), plans) == [OTHER, *range(1, COMMITS), OTHER, COMMITS]
    after = zip((0.5, *range(1, COMMITS), LAST_INSIDE, COMMITS), (plan.position for plan in plans), strict=True)
    return table, {0: Position("", 1), **dict(after)}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("order", ORDERS)
def test_no_reader_takes_a_table_that_is_being_dropped_for_one_without_data(
    original: tuple[Table, dict[float, Position]], tmp_path: Path, order: str, reader: str
) -> None:
    table = DroppedTable(*original, tmp_path / "db.db" / "t")
    files = ORDERS[order]([path for path in table.path.rglob("*") if path.is_file()])
    read, prepare = READERS[reader]
    for file, ask in [(file, prepare(table)) for file in files]:
        file.unlink()
        outcome: Any
        try:
            outcome = ask()
        except PaimonStreamError as error:
            outcome = error
        allowed = table.allowed(read, is_given=reader == "changes")
        assert any(allows(outcome) for allows in allowed), f"without {file.relative_to(table.path)}: {outcome!r}"
    assert isinstance(outcome, TableChangedError) and "dropped" in str(outcome)
    assert not any(path.is_file() for path in table.path.rglob("*")), "a reader has written into the table"


@pytest.mark.parametrize("ends", [(0, COMMITS), (EPOCH, EPOCH + timedelta(days=1))], ids=["ids", "times"])
def test_a_range_from_the_beginning_of_a_dropped_table_is_not_empty(tmp_path: Path, ends: tuple[Any, Any]) -> None:
    table = Table(tmp_path).commit_each([1])
    table.handle().create_tag("one")
    builder = table.builder().with_range(*ends)
    shutil.rmtree(table.path / "snapshot")
    with pytest.raises(TableChangedError, match="is being dropped, or was emptied: it has no snapshots"):
        _ended(builder)
    shutil.rmtree(table.path / "tag")
    assert _ended(builder) == []
    builder = table.builder().with_range(*ends)
    shutil.rmtree(table.path / "schema")
    with pytest.raises(TableChangedError, match="was dropped: it has no schema"):
        _ended(builder)


@pytest.mark.parametrize("gone", [["."], ["consumer", "schema"], ["consumer", "snapshot"]], ids="-".join)
def test_a_consumer_whose_file_went_with_the_table_blames_no_other_reader(tmp_path: Path, gone: list[str]) -> None:
    table = Table(tmp_path)
    table.commit_each(range(1, COMMITS + 1))
    builder = table.builder().with_start("earliest").with_catch_up("replay").with_consumer_id("etl")
    with builder.new_streaming_scan() as scan:
        for _ in range(2):
            assert scan.plan() is not None
        for each in gone:
            shutil.rmtree(table.path / each)
        with pytest.raises(TableChangedError, match="dropped"):
            available(scan)
    assert not (table.path / "consumer").exists()


def test_a_consumer_in_its_first_plan_blames_no_other_reader(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.commit_files([1, 2])
    builder = table.builder().with_start("latest-full").with_limits(max_splits=1).with_consumer_id("etl")
    with builder.new_streaming_scan() as scan:
        assert scan.plan() is not None
        assert any((table.path / "consumer").iterdir()) and not (table.path / "consumer" / "consumer-etl").exists()
        for each in ("consumer", "snapshot"):
            shutil.rmtree(table.path / each)
        with pytest.raises(TableChangedError, match="is being dropped, or was emptied"):
            available(scan)


def test_a_consumer_inside_its_first_snapshot_blames_no_other_reader(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.commit_files([1, 2])
    builder = table.builder().with_start("earliest").with_catch_up("replay").with_limits(max_splits=1)
    with builder.with_consumer_id("etl").new_streaming_scan() as scan:
        assert scan.plan() is not None and scan.plan() is not None
        for each in ("consumer", "snapshot"):
            shutil.rmtree(table.path / each)
        with pytest.raises(TableChangedError, match="is being dropped, or was emptied"):
            available(scan)


def test_a_group_whose_files_went_with_the_table_blames_no_deletion(tmp_path: Path) -> None:
    table = Table(tmp_path, bucket="2", bucket_key="k").commit_each([1])
    with table.builder().with_start("earliest").new_group("etl").open_sync() as stream:
        next(stream)
        for each in ("consumer", "snapshot"):
            shutil.rmtree(table.path / each)
        with pytest.raises(TableChangedError, match="is being dropped, or was emptied"):
            next(stream)
            next(stream)


@pytest.mark.parametrize("state", ["new", "saved", "begun", "reset"])
def test_a_group_with_an_end_does_not_end_because_all_snapshots_are_gone(tmp_path: Path, state: str) -> None:
    table = Table(tmp_path, bucket="2", bucket_key="k").commit_each([1])
    builder = table.builder().with_start("earliest")
    with builder.new_streaming_scan() as scan:
        position = available(scan)[-1].position
    if state in ("begun", "reset"):
        assert _ended(builder.with_end(latest=True).new_group("etl")) == [1]
        builder = table.builder().with_start("earliest")
    else:
        builder = table.builder().with_start(position=position)
    consumers = ConsumerManager(table.handle().file_io, str(table.path))
    if state == "saved":
        # A reader of the id without a group that has read nothing yet.
        consumers.reset_consumer("etl", Consumer(0))
    if state == "reset":
        consumers.reset_consumer("etl", Consumer(1))
    shutil.rmtree(table.path / "snapshot")
    with pytest.raises(TableChangedError, match="is being dropped, or was emptied"):
        _ended(builder.with_end(latest=True).new_group("etl"))


def test_a_member_of_a_group_whose_end_is_rolled_back_does_not_wait_for_it(tmp_path: Path) -> None:
    table = Table(tmp_path, bucket="1", bucket_key="k").commit_each([1, 2, 3])
    builder = table.builder().with_start("earliest").with_catch_up("replay")
    other = builder.copy().with_end(latest=True).new_group("etl")
    with ThreadPoolExecutor(1) as pool, other.open_sync() as second:
        with builder.new_group("etl", commit="manual").open_sync() as first:
            batch = next(first)
            assert batch.rows["k"].to_pylist() == [1]
            # It knows its end when it has joined, and reads nothing while the first member has the only slot.
            waiting = pool.submit(list, second)
            until(lambda: second._reader.membership is not None)
            for number in (3, 2):
                (table.path / f"snapshot/snapshot-{number}").unlink()
            (table.path / "snapshot/LATEST").unlink()
            batch.commit()
        with pytest.raises(TableChangedError, match="rolled back, or is being dropped: it ends at snapshot 1"):
            waiting.result(30)
