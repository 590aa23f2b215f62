"""Positions: inside a snapshot with other settings, and held against a table that has changed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pypaimon.streaming import (
    AsyncStreamingTableScan,
    EndOfScan,
    Position,
    PositionBeyondLatestError,
    PositionExpiredError,
    StreamConfigError,
    StreamReadBuilder,
    TableChangedError,
)
from pypaimon.streaming.model.position import ChainBase, Phase, ReadUnit
from support.samples import SOAK
from support.stores.fault_file_io import FaultFileIO
from support.tables.streamed_table import Table, available, keys, rows, snapshots

pytestmark = [pytest.mark.slow, pytest.mark.soak]

# ---- the value ----


def test_json_is_canonical_and_comes_back() -> None:
    unit = ReadUnit((None, "ä b", ""), -2, "data-1.orc", 7)
    for position in (
        Position("1700000000000", 5),
        Position("u", 5, "user/1/2"),
        Position("u", 5, "f", Phase.FULL, unit),
        Position("u", 0, "f", Phase.FULL, unit, base=ChainBase(3, "g", merged=True)),
        Position("u", 5, "f", Phase.FULL, base=ChainBase(0)),
    ):
        assert Position.from_json(position.to_json()) == position
    assert Position("t", 5, "f", Phase.FOLLOW, ReadUnit(("x",), 0, "f1", 0)).to_json() == (
        '{"version":1,"table":"t","snapshot":5,"fingerprint":"f","phase":"follow",'
        '"unit":{"partition":["x"],"bucket":0,"file":"f1","index":0}}'
    )
    assert Position("t", 5, "f", Phase.FULL, base=ChainBase(3, "g")).to_json() == (
        '{"version":2,"table":"t","snapshot":5,"fingerprint":"f","phase":"full",'
        '"base":{"snapshot":3,"merged":false,"fingerprint":"g"}}'
    )


@pytest.mark.parametrize(
    "text",
    ["", "{}", "5", "null", '{"version":3,"table":"t","snapshot":1,"phase":"follow"}',
     '{"version":1,"table":"t","snapshot":"1","phase":"follow"}', '{"version":1,"table":"t","snapshot":1,"phase":"x"}',
     '{"version":1,"table":"t","snapshot":1,"phase":"follow","unit":{"bucket":0}}',
     '{"version":2,"table":"t","snapshot":1,"phase":"full","base":{"snapshot":1}}',
     '{"version":2,"table":"t","snapshot":1,"phase":"full","base":{"snapshot":"1","merged":true}}',
     '{"version":2,"table":"t","snapshot":1,"phase":"full","base":{"snapshot":1,"merged":1}}',
     '{"version":2,"table":"t","snapshot":1,"phase":"full","base":[1]}'],
)  # fmt: skip
def test_an_invalid_position_is_refused(text: str) -> None:
    with pytest.raises(StreamConfigError):
        Position.from_json(text)


def test_order_follows_the_stream() -> None:
    def unit(bucket: int, index: int = 0, partition: str | None = "p") -> ReadUnit:
        return ReadUnit((partition,), bucket, "f", index)

    ordered = [
        Position("t", 4),
        Position("t", 4, unit=unit(0, partition=None)),
        Position("t", 4, unit=unit(0)),
        Position("t", 4, unit=unit(0, 1)),
        Position("t", 4, unit=unit(3)),
        Position("t", 4, unit=unit(-2)),
        Position("t", 5),
    ]
    backwards = ordered[::-1]
    assert sorted(backwards) == ordered
    known, unknown = Position("t", 4, "f"), Position("t", 4)
    assert known <= unknown <= known and not known > unknown and not known < unknown and known != unknown
    with pytest.raises(ValueError, match="different tables"):
        _ = Position("a", 1) < Position("b", 2)


# ---- inside a snapshot ----

_KINDS: dict[str, dict[str, Any]] = {
    "fixed": {"bucket": "3", "bucket_key": "k"},
    "unaware": {"bucket": "-1"},
    "none": {"primary_key": True, "bucket": "3"},
    "input": {"primary_key": True, "bucket": "3", "changelog_producer": "input"},
}


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    """Four commits of 12 keys each, spread over buckets; of a primary-key table later ones change earlier keys."""
    tables = {}
    for name, options in _KINDS.items():
        table = Table(tmp_path_factory.mktemp(name) / "w", **options)
        for number in range(4):
            first = number * (6 if table.primary_key else 12)
            table.commit([("+U", key, f"{key}@{number}") for key in range(first, first + 12)])
        tables[name] = table
    return tables


def _limited(draw: Any, builder: StreamReadBuilder) -> StreamReadBuilder:
    limit = draw(st.sampled_from(["max_rows", "max_bytes", "max_splits", None]))
    if limit is not None:
        builder.with_limits(**{limit: draw(st.integers(1, 30 if limit != "max_bytes" else 5000))})
    return builder.with_prefetch(draw(st.sampled_from([0, 3])))


@settings(max_examples=600 if SOAK else 8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), kind=st.sampled_from(sorted(_KINDS)), full=st.booleans())
def test_restarts_inside_snapshots_with_other_settings_are_exact(
    histories: dict[str, Table], data: Any, kind: str, full: bool
) -> None:
    """Each restart has other limits, projection and split size; filter and shard are those of the whole stream."""
    table = histories[kind]
    shard = data.draw(st.sampled_from([None, (0, 2), (1, 2)]))
    least = data.draw(st.sampled_from([None, 0, 7, 20]))

    def builder(**options: str) -> StreamReadBuilder:
        made = table.builder(**options).with_catch_up("replay").with_end(snapshot_id=4)
        if shard is not None:
            made.with_shard(*shard)
        if least is not None:
            made.with_filter(made.new_predicate_builder().greater_or_equal("k", least))
        return made.with_start(snapshot_id=2 if full else table.ids()[0], full=full)

    whole = builder()
    read = whole.new_read()
    wanted = [row for plan in available(whole.new_streaming_scan()) for row in rows(read, plan)]
    found: list[Any] = []
    position: str | None = None
    while True:
        options = {"source.split.target-size": data.draw(st.sampled_from(["1 b", "1 kb", "128 mb"]))}
        part = _limited(data.draw, builder(**options))
        if position is not None:
            part.with_start(position=position)
        scan = part.new_streaming_scan()
        read = part.new_read()
        try:
            for _ in range(data.draw(st.integers(1, 4))):
                if (plan := scan.plan()) is not None:
                    found += rows(read, plan)
                    assert scan.checkpoint() == plan.position
        except EndOfScan:
            break
        finally:
            scan.close()
        at = scan.checkpoint()
        position = None if at is None else at.to_json()
    assert sorted(found) == sorted(wanted)
    if kind != "unaware":
        buckets_apart = {key: [row for row in found if row[1] == key] for key in {row[1] for row in found}}
        assert buckets_apart == {key: [row for row in wanted if row[1] == key] for key in buckets_apart}


@settings(max_examples=300 if SOAK else 4, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), kind=st.sampled_from(sorted(_KINDS)), full=st.booleans())
def test_a_position_means_the_same_units_whatever_the_resuming_reader_selects(
    histories: dict[str, Table], data: Any, kind: str, full: bool
) -> None:
    """Read a part without filter and shard; the rest by shards and halves: each row once."""
    table = histories[kind]
    builder = table.builder().with_catch_up("replay").with_limits(max_splits=1).with_prefetch(0)
    builder.with_start(snapshot_id=3, full=True) if full else builder.with_start(snapshot_id=2)
    scan, read = builder.new_streaming_scan(), builder.new_read()
    whole = [rows(read, plan) for plan in available(scan)]
    scan.restore(None)
    cut = data.draw(st.integers(1, len(whole)))
    while cut:
        plan = scan.plan()
        cut -= plan is not None
    position = scan.checkpoint()
    done = len([None for _ in whole]) - len(_plans_from(table, position, None, None))
    found = [row for part in whole[:done] for row in part]
    for shard in ((0, 2), (1, 2)):
        for half in (True, False):
            found += [row for part in _plans_from(table, position, shard, half) for row in part]
    # Files of a first plan that need no merging come out as +I, as in Java, and a filter may leave only such.
    assert sorted(row[1:] for row in found) == sorted(row[1:] for part in whole for row in part)


def _plans_from(table: Table, position: Position | None, shard: Any, half: bool | None) -> list[list[Any]]:
    builder = table.builder().with_catch_up("replay").with_start(position=position)
    if shard is None:
        builder.with_limits(max_splits=1)
    else:
        builder.with_shard(*shard)
    if half is not None:
        predicates = builder.new_predicate_builder()
        builder.with_filter(predicates.less_than("k", 15) if half else predicates.greater_or_equal("k", 15))
    read = builder.new_read()
    return [rows(read, plan) for plan in available(builder.new_streaming_scan())]


# ---- a table that has changed ----


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "w").commit_each(range(1, 7))


def following(table: Table, file_io: Any = None, **settings: Any) -> AsyncStreamingTableScan:
    builder = table.builder(file_io).with_prefetch(0).with_catch_up("replay").with_start(snapshot_id=1)
    for name, value in settings.items():
        getattr(builder, f"with_{name}")(value)
    return builder.new_streaming_scan()


def polls(scan: AsyncStreamingTableScan, count: int = 40) -> None:
    for _ in range(count):
        assert scan.plan() is None


def test_expiry_under_a_running_stream_is_an_error_that_says_what_is_there(table: Table) -> None:
    scan = following(table)
    assert scan.plan() is not None
    table.expire(4)
    scan.restore(2)
    with pytest.raises(PositionExpiredError) as caught:
        available(scan)
    assert (caught.value.wanted, caught.value.earliest, caught.value.latest) == (2, 4, 6)
    with pytest.raises(PositionExpiredError):
        scan.plan()
    scan.restore(4)
    assert snapshots(available(scan)) == [4, 5, 6]


@pytest.mark.parametrize("saved", ["position", "id", "consumer"])
@pytest.mark.parametrize(("policy", "wanted"), [("fail", None), ("earliest", [4, 5, 6]), ("latest", []), ("full", [6])])
def test_an_expired_saved_position_follows_the_policy(
    table: Table, policy: str, wanted: list[int] | None, saved: str
) -> None:
    before = following(table, consumer_id="c")
    assert [plan.snapshot_id for plan in (before.plan(), before.plan()) if plan] == [1, 2]
    position = before.checkpoint()
    before.commit(position)  # type: ignore[arg-type]
    before.close()
    table.expire(4)
    scan = following(table, on_expired=policy, **({"consumer_id": "c"} if saved == "consumer" else {}))
    if saved != "consumer":
        scan.restore(position if saved == "position" else 3)
    if wanted is None:
        with pytest.raises(PositionExpiredError, match="on_expired") as caught:
            scan.plan()
        assert (caught.value.wanted, caught.value.earliest, caught.value.latest) == (3, 4, 6)
    else:
        assert snapshots(available(scan)) == wanted
        table.commit([7])
        assert snapshots(available(scan)) == [7]
        if saved == "consumer":
            assert scan.committed() == 8
    scan.close()


def test_a_configured_start_that_has_expired_begins_at_the_earliest_with_a_warning(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    table.expire(3)
    scan = following(table)
    assert snapshots(available(scan)) == [3, 4, 5, 6]
    assert "which has expired" in caplog.text


def test_a_saved_position_inside_an_expired_full_plan(tmp_path: Path) -> None:
    table = Table(tmp_path / "w", bucket="2", bucket_key="k")
    table.commit(range(4))
    builder = table.builder().with_limits(max_splits=1)
    plan = builder.new_streaming_scan().plan()
    assert plan is not None and plan.position.phase is Phase.FULL
    for number in range(2, 4):
        table.commit([number * 10])
    table.expire(3)
    scan = builder.copy().with_start(position=plan.position).new_streaming_scan()
    with pytest.raises(PositionExpiredError):
        scan.plan()
    again = builder.copy().with_start(position=plan.position).with_on_expired("full").new_streaming_scan()
    assert snapshots(available(again)) == [3] * 4


def test_a_position_beyond_the_latest_is_an_error_at_once(table: Table) -> None:
    scan = following(table)
    for wanted in (8, 100):
        scan.restore(wanted)
        with pytest.raises(PositionBeyondLatestError) as caught:
            scan.plan()
        assert (caught.value.wanted, caught.value.latest) == (wanted, 6)
    scan.restore(7)
    assert scan.plan() is None
    with pytest.raises(StreamConfigError):
        scan.restore("7")  # type: ignore[arg-type]


def test_a_rollback_that_new_commits_have_overtaken_is_found_by_one_request(table: Table) -> None:
    file_io = FaultFileIO()
    scan = following(table, file_io)
    assert len(available(scan)) == 6
    table.rollback(4)
    table.commit_each((51, 61, 71))
    file_io.forget()
    with pytest.raises(TableChangedError, match="rolled back"):
        available(scan)
    asked = [name for name in file_io.names() if not name.startswith("manifest")]
    assert asked == ["snapshot-7", "snapshot-6", "schema-0"]
    with pytest.raises(TableChangedError, match="rolled back"):
        scan.plan()


def test_a_rollback_is_found_within_bounded_polls(table: Table) -> None:
    scan = following(table)
    assert len(available(scan)) == 6
    table.rollback(4)
    with pytest.raises(TableChangedError):
        polls(scan)


@pytest.mark.parametrize("inside", [False, True])
def test_a_saved_position_after_a_rollback_is_found_by_the_fingerprint(tmp_path: Path, inside: bool) -> None:
    table = Table(tmp_path / "w", bucket="2", bucket_key="k")
    for number in range(1, 5):
        table.commit(range(number * 10, number * 10 + 4))
    builder = table.builder().with_catch_up("replay").with_start("earliest")
    if inside:
        builder.with_limits(max_splits=1)
    scan = builder.new_streaming_scan()
    position = available(scan)[-2 if inside else -1].position
    assert (position.unit is not None) is inside
    table.rollback(2)
    for number in range(3, 6):
        table.commit(range(number * 10, number * 10 + 4))
    again = table.builder().with_start(position=position).new_streaming_scan()
    with pytest.raises(TableChangedError, match="rolled back"):
        again.plan()


@pytest.mark.parametrize("commits", [0, 3, 6, 9])
def test_a_recreated_table_is_another_table(table: Table, commits: int) -> None:
    scan = following(table)
    assert len(available(scan)) == 6
    position = scan.checkpoint()
    table.drop()
    with pytest.raises(TableChangedError, match="dropped"):
        polls(scan)
    table.create()
    table._writer = table.handle()
    for number in range(commits):
        table.commit([number, -number])
    with pytest.raises(TableChangedError):
        polls(scan)
        raise AssertionError("unnoticed")
    assert position is not None
    again = table.builder().with_start(position=position).new_streaming_scan()
    with pytest.raises(TableChangedError, match="another table"):
        again.plan()


@pytest.mark.parametrize("forked", [False, True])
def test_a_position_of_another_branch_is_refused(table: Table, forked: bool) -> None:
    """Also where the branches still hold the same snapshots, and where what would tell them apart has expired."""
    for directory in ("schema", "snapshot"):
        shutil.copytree(table.path / directory, table.path / "branch" / "branch-b" / directory)
    scans = {name: following_branch(table, name) for name in ("main", "b")}
    positions = {}
    for name, scan in scans.items():
        assert len(available(scan)) == 6
        positions[name] = scan.checkpoint()
        scan.close()
    assert positions["main"] != positions["b"]
    if forked:
        table.commit_each((7, 8))
        table.expire(8)
    for name, other in (("main", "b"), ("b", "main")):
        again = following_branch(table, name)
        again.restore(Position.from_json(positions[other].to_json()))  # type: ignore[union-attr]
        with pytest.raises(TableChangedError, match="another table or branch"):
            again.plan()
        again.close()
    again = following_branch(table, "b")
    again.restore(positions["b"])
    assert available(again) == []
    again.close()


def following_branch(table: Table, branch: str) -> AsyncStreamingTableScan:
    handle = table.catalog.get_table(table.name if branch == "main" else f"{table.name}$branch_{branch}")
    return StreamReadBuilder(handle).with_catch_up("replay").with_start(snapshot_id=1).new_streaming_scan()


def test_a_position_of_another_table_is_refused(table: Table, tmp_path: Path) -> None:
    other = Table(tmp_path / "other").commit_each([1])
    position = following(table).plan()
    assert position is not None
    scan = following(other)
    scan.restore(Position("0", 1))
    with pytest.raises(TableChangedError, match="another table"):
        scan.plan()
    scan.restore(None)
    assert snapshots(available(scan)) == [1]


def test_a_seek_throws_away_what_was_made_ahead(table: Table, tmp_path: Path) -> None:
    scan = following(table, prefetch=4)
    stream = scan.stream_sync()
    assert next(stream).snapshot_id == 1
    for target in (4, 2, 5, 1, 6):
        scan.restore(target)
        assert scan.next_snapshot_id == target
        assert next(stream).snapshot_id == target
    scan.next_snapshot_id = 3
    assert next(stream).snapshot_id == 3
    scan.close()


def test_a_seek_after_a_rollback_reads_what_is_there_now(table: Table) -> None:
    """The snapshots of before are cached under the same ids."""
    scan = following(table, prefetch=4)
    read = table.builder().new_read()
    assert keys(read, available(scan)) == [1, 2, 3, 4, 5, 6]
    table.rollback(3)
    table.commit_each((40, 50))
    scan.restore(4)
    assert keys(read, available(scan)) == [40, 50]
    scan.close()


def test_a_missing_data_file_is_distinguished(table: Table) -> None:
    builder = table.builder().with_start(snapshot_id=2).with_end(snapshot_id=2)
    (plan,) = available(builder.new_streaming_scan())
    Path(plan.splits()[0].files[0].file_path).unlink()
    read = builder.new_read()
    with pytest.raises(OSError, match=plan.splits()[0].files[0].file_name) as damaged:
        read.to_arrow(plan.splits())
    assert type(damaged.value).__name__ == "CorruptTableError"
    table.expire(4)
    with pytest.raises(PositionExpiredError):
        builder.new_read().to_arrow(plan.splits())


def test_snapshots_lost_in_the_middle_are_damage(table: Table) -> None:
    table.snapshot_path(3).unlink()
    scan = following(table)
    found = []
    with pytest.raises(OSError, match="snapshot-3"):
        for _ in range(40):
            plan = scan.plan()
            found += [plan.snapshot_id] if plan else []
    assert found == [1, 2]


def test_positions_outlive_the_process_and_the_handle(table: Table, tmp_path: Path) -> None:
    scan = following(table)
    plans = [scan.plan() for _ in range(3)]
    text = plans[-1].position.to_json()  # type: ignore[union-attr]
    scan.close()
    moved = table.copy(tmp_path / "copy")
    shutil.rmtree(table.path)
    again = moved.builder().with_catch_up("replay").with_start(position=text).new_streaming_scan()
    assert snapshots(available(again)) == [4, 5, 6]
