"""Ranges of a table's history: what they may be, where they begin and end, and going on inside of one."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import (
    CorruptTableError,
    DeltaFollowUpScanner,
    Position,
    PositionBeyondLatestError,
    PositionExpiredError,
    StreamConfigError,
    StreamReadBuilder,
    TableChangedError,
    UnsupportedTableError,
)
from pypaimon.streaming.stream_types import PlanKind
from pypaimon.streaming.targets import apply_to_dict
from support.tables.streamed_table import Table, all_keys, available, keys, rows

pytestmark = pytest.mark.slow

EPOCH = datetime.fromtimestamp(0, tz=timezone.utc)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Six snapshots of an append table, of which the first two have expired."""
    table = Table(tmp_path / "warehouse").commit_each(range(6))
    for name, number in (("four", 4), ("six", 6)):
        table.handle().create_tag(name, number)
    table.expire(3)
    return table


@pytest.fixture
def keyed(tmp_path: Path) -> Table:
    """A primary-key table that was never compacted."""
    table = Table(tmp_path / "warehouse", "pk", primary_key=True)
    table.commit([("+I", key, "a") for key in range(1, 9)])
    table.commit([("+U", 1, "b"), ("-D", 2, "a"), ("+I", 9, "a")])
    table.commit([("+U", 3, "b"), ("-D", 9, "a")])
    return table


def time_of(table: Table, snapshot_id: int) -> datetime:
    millis: int = table.snapshot(snapshot_id)["timeMillis"]
    return EPOCH + timedelta(milliseconds=millis)


def found(table: Table, *ends: Any, **more: Any) -> list[int]:
    builder = table.builder().with_range(*ends, **more)
    return sorted(all_keys(builder))


def changes(builder: StreamReadBuilder) -> list[Any]:
    with builder.new_streaming_scan() as scan:
        return sorted(row for plan in available(scan) for row in rows(builder.new_read(), plan))


class TestEnds:
    def test_ids(self, table: Table) -> None:
        assert found(table, 2, 6) == [2, 3, 4, 5]
        assert found(table, 5, 6) == found(table, "5", "6") == [5]
        assert found(table, 6, 6) == found(table, 90, 90) == []

    def test_an_id_is_not_a_tag_of_that_name(self, table: Table) -> None:
        for name, number in (("5", 4), ("6", 5)):
            table.handle().create_tag(name, number)
        assert found(table, 5, 6) == [5]
        assert found(table, "5", "6") == [4]

    def test_tags_live_without_their_snapshots(self, table: Table) -> None:
        for number in (3, 4, 5):
            table.snapshot_path(number).unlink()
        (table.path / "snapshot" / "EARLIEST").write_text("6")
        assert found(table, "four", "six", "delta") == [4, 5]
        with pytest.raises(PositionExpiredError):
            found(table, "four", "six", tag_to_snapshot=True)

    def test_times(self, table: Table) -> None:
        third, last = time_of(table, 3), time_of(table, 6)
        tick = timedelta(milliseconds=1)
        assert found(table, EPOCH, last) == found(table, third - tick, last) == [2, 3, 4, 5]
        assert found(table, EPOCH, EPOCH + tick) == found(table, last + tick, last + 2 * tick) == []
        assert found(table, third, last + tick, "diff") == [3, 4, 5]

    def test_a_difference_of_times_begins_with_nothing_only_where_nothing_has_expired(self, keyed: Table) -> None:
        def values(end: int) -> list[int]:
            builder = keyed.builder().with_range(EPOCH, time_of(keyed, end), "diff").with_include_row_kind(False)
            return sorted(all_keys(builder))

        assert values(3) == [1, 3, 4, 5, 6, 7, 8]
        keyed.expire(2)
        assert values(3) == [3]

    def test_automatic_tags(self, table: Table) -> None:
        for name, number in (("2026-01-30", 3), ("2026-02-01", 5), ("mine", 4), ("2026-02-03", 6)):
            table.handle().create_tag(name, number)
        assert found(table, None, "2026-02-03") == [5]
        assert found(table, None, "2026-02-01", "delta") == [3, 4]
        assert found(table, None, "2026-01-30") == found(table, None, "2026-02-02") == []
        with pytest.raises(StreamConfigError, match="'mine' is not an auto-created tag"):
            found(table, None, "mine")

    def test_an_empty_table_has_empty_ranges(self, tmp_path: Path) -> None:
        table = Table(tmp_path / "warehouse")
        assert found(table, 0, 3) == found(table, EPOCH, EPOCH + timedelta(days=1)) == found(table, 2, 2) == []
        with pytest.raises(PositionBeyondLatestError, match=r"Snapshot 3 is beyond the latest snapshot \(None\)"):
            found(table, 1, 3)

    @pytest.mark.parametrize(
        ("ends", "more", "error", "text"),
        [
            ((1, 6), {}, PositionExpiredError, "Snapshot 2 has expired.* Choose a later snapshot"),
            ((-1, 6), {}, PositionExpiredError, "has expired"),
            ((0, 6), {"mode": "diff"}, PositionExpiredError, "Snapshot 0 has expired.* Choose a later snapshot"),
            (
                (5, 7),
                {},
                PositionBeyondLatestError,
                "Snapshot 7 is beyond the latest.* being dropped. Choose an earlier one",
            ),
            ((5, 7), {"mode": "diff"}, PositionBeyondLatestError, "Snapshot 7 is beyond the latest"),
            ((6, 5), {}, StreamConfigError, "swap them"),
            (("6", "5"), {}, StreamConfigError, "swap them"),
            (("six", "four"), {}, StreamConfigError, "swap them"),
            ((EPOCH, EPOCH - timedelta(1)), {}, StreamConfigError, "swap them"),
            (("four", "6"), {}, StreamConfigError, "neither two tags nor two snapshot ids; tags are: four, six"),
            (("four", 6), {}, StreamConfigError, "give two snapshot ids"),
            ((3, EPOCH), {}, StreamConfigError, "give two snapshot ids"),
            ((True, 6), {}, StreamConfigError, "give two snapshot ids"),
            ((None, 6), {}, StreamConfigError, "give two snapshot ids"),
            ((datetime(2026, 1, 1), EPOCH), {}, StreamConfigError, "has no time zone"),
            ((3, 6), {"mode": "all"}, StreamConfigError, "choose one of 'auto', 'delta', 'changelog', 'diff'"),
            (("four", "six"), {"mode": "diff", "tag_to_snapshot": True}, StreamConfigError, "contradict"),
            ((4, 6), {"tag_to_snapshot": True}, StreamConfigError, "goes with two tags"),
            ((None, "six"), {"tag_to_snapshot": True}, StreamConfigError, "goes with two tags"),
        ],
    )
    def test_an_invalid_range_is_refused(
        self, table: Table, ends: tuple[Any, Any], more: dict[str, Any], error: type[Exception], text: str
    ) -> None:
        with pytest.raises(error, match=text):
            found(table, *ends, **more)


class TestSettings:
    @pytest.mark.parametrize(
        ("given", "text"),
        [
            (lambda builder: builder.with_start("latest"), "with_start"),
            (lambda builder: builder.with_end(latest=True), "with_end"),
            (lambda builder: builder.with_end(watermark=1), "with_end"),
            (lambda builder: builder.with_consumer_id("c"), "with_consumer_id"),
            (lambda builder: builder.with_on_expired("earliest"), "with_on_expired"),
            (lambda builder: builder.with_catch_up("net"), "with_catch_up"),
            (lambda builder: builder.with_follow_up_scanner(DeltaFollowUpScanner()), "with_follow_up_scanner"),
        ],
    )
    def test_what_contradicts_a_range_is_refused(self, table: Table, given: Any, text: str) -> None:
        with pytest.raises(StreamConfigError, match=text):
            given(table.builder().with_range(3, 5)).new_streaming_scan()

    def test_options_for_streams_that_follow_the_table_do_not_count(self, table: Table) -> None:
        options = {"consumer-id": "c", "scan.mode": "latest", "streaming.read.snapshot.delay": "1 d"}
        builder = table.builder(**options, **{"scan.bounded.watermark": "0"}).with_range(3, 5)
        assert all_keys(builder) == [3, 4]
        assert not (table.path / "consumer").exists()

    def test_the_options_of_a_range_are_refused_as_in_java(self, table: Table) -> None:
        with pytest.raises(StreamConfigError, match=r"Cannot read incremental in streaming mode\. Give the range"):
            table.builder(**{"incremental-between": "3,5"}).with_range(3, 5).new_streaming_scan()

    def test_shards_need_no_consumer_id(self, table: Table) -> None:
        shards = [table.builder().with_range(2, 6).with_shard(index, 2) for index in range(2)]
        assert sorted(change for each in shards for change in changes(each)) == changes(
            table.builder().with_range(2, 6)
        )

    def test_shards_do_not_share_a_range_of_times_where_compaction_moves_rows(self, table: Table) -> None:
        builder = table.builder().with_range(EPOCH, datetime.now(timezone.utc)).with_shard(0, 2)
        with pytest.raises(StreamConfigError, match="two snapshot ids"):
            builder.new_streaming_scan()

    def test_limits_cut_a_range_that_is_one_plan(self, keyed: Table) -> None:
        whole = changes(keyed.builder().with_range(1, 3, "diff"))
        with keyed.builder().with_range(1, 3, "diff").with_limits(max_splits=1).new_streaming_scan() as scan:
            plans = available(scan)
        assert [plan.kind for plan in plans] == [PlanKind.NET] * 2
        assert sorted(row for plan in plans for row in rows(keyed.builder().new_read(), plan)) == whole


class TestRows:
    def test_kinds_turn_one_state_into_the_other(self, keyed: Table) -> None:
        builder = keyed.builder().with_range(1, 3, "diff")
        turned = [("+U", 1, "b"), ("+U", 3, "b"), ("-D", 2, "a"), ("-U", 1, "a"), ("-U", 3, "a")]
        assert changes(builder) == turned
        assert changes(builder.with_include_row_kind(False)) == [("+I", 1, "b"), ("+I", 3, "b")]

    def test_kinds_of_an_append_table_take_back_what_is_gone(self, table: Table) -> None:
        table.write(pa.table({"k": [9], "v": ["x"]}), overwrite=True)
        builder = table.builder().with_range(5, 7, "diff")
        assert changes(builder) == [("+I", 9, "x")]
        gone = [("-D", key, f"v{key}") for key in range(5)]
        assert changes(builder.with_include_row_kind(True)) == [("+I", 9, "x"), *gone]

    def test_rows_that_are_written_again_are_taken_away_first(self, table: Table) -> None:
        """So that a target with keys keeps them."""
        table.write(pa.table({"k": [0, 1, 2, 3, 4, 5], "v": ["x"] * 6}), overwrite=True)
        state = {key: {"k": key, "v": f"v{key}"} for key in range(6)}
        builder = table.builder().with_range(6, 7, "diff").with_include_row_kind(True).with_limits(max_splits=1)
        with builder.open_sync() as stream:
            for batch in stream:
                apply_to_dict(batch, state, "k")
        assert state == {key: {"k": key, "v": "x"} for key in range(6)}

    def test_a_filter_is_one_of_both_states(self, keyed: Table) -> None:
        builder = keyed.builder().with_range(1, 3, "diff")
        builder.with_filter(builder.new_predicate_builder().equal("v", "a"))
        assert changes(builder) == [("-D", 1, "a"), ("-D", 2, "a"), ("-D", 3, "a")]

    def test_a_filter_needs_no_kinds_where_rows_are_new_or_changed(self, keyed: Table) -> None:
        builder = keyed.builder().with_range(1, 3, "diff").with_include_row_kind(False)
        builder.with_filter(builder.new_predicate_builder().equal("v", "b"))
        assert changes(builder) == [("+I", 1, "b"), ("+I", 3, "b")]
        builder.with_filter(builder.new_predicate_builder().equal("v", "a"))
        assert changes(builder) == []

    def test_records_that_no_stream_would_be_given_are_read(self, tmp_path: Path) -> None:
        """Of ranges Java refuses no merge engine."""
        table = Table(tmp_path / "warehouse", primary_key=True, bucket="1", merge_engine="partial-update")
        table.commit([("+I", 1, "a")])
        table.commit([("+I", 1, "b")])
        assert changes(table.builder().with_range(0, 2)) == [("+I", 1, "a"), ("+I", 1, "b")]
        assert changes(table.builder().with_range(1, 2, "diff")) == [("+U", 1, "b"), ("-U", 1, "a")]

    def test_a_changelog_is_that_of_all_snapshots_but_overwrites(self, tmp_path: Path) -> None:
        table = Table(tmp_path / "warehouse", primary_key=True, bucket="1", changelog_producer="input")
        for number in range(3):
            table.commit([("+I", number, "a")])
        for number, kind in ((2, "OVERWRITE"), (3, "COMPACT")):
            table.snapshot_path(number).write_text(json.dumps({**table.snapshot(number), "commitKind": kind}))
        assert found(table, 0, 3) == [0, 2]
        assert found(table, 0, 3, "delta") == [0]

    def test_a_table_without_changelog_has_none(self, table: Table) -> None:
        table.commit_each(range(20))
        assert found(table, 3, 20, "changelog") == []

    def test_a_range_that_was_rescaled_cannot_be_compared(self, keyed: Table) -> None:
        keyed.catalog.alter_table(keyed.name, [SchemaChange.set_option("bucket", "4")], False)
        keyed.commit([("+I", 1, "c")], overwrite=True, table=keyed.handle())
        with pytest.raises(UnsupportedTableError, match="number of buckets"):
            found(keyed, 1, 4, "diff")
        assert found(keyed, 1, 3, "diff") == [1, 1, 2, 3, 3]

    def test_a_table_that_was_rescaled_cannot_be_compared_though_no_key_has_moved(self, tmp_path: Path) -> None:
        """As in Java, of append tables too."""
        table = Table(tmp_path / "warehouse", bucket="2", bucket_key="k").commit_each([1])
        table.catalog.alter_table(table.name, [SchemaChange.set_option("bucket", "4")], False)
        table.commit([2], overwrite=True, table=table.handle())
        with pytest.raises(UnsupportedTableError, match="number of buckets of the table"):
            found(table, 1, 2, "diff")


class TestGoingOn:
    def position(self, table: Table, *ends: Any, plans: int = 1, **more: Any) -> Position:
        """Behind so many plans of a range that limits cut."""
        with table.builder().with_range(*ends, **more).with_limits(max_splits=1).new_streaming_scan() as scan:
            for _ in range(plans):
                assert scan.plan() is not None
            position = scan.checkpoint()
        assert position is not None
        return Position.from_json(position.to_json())

    def test_inside_a_difference(self, keyed: Table) -> None:
        position = self.position(keyed, 1, 3, mode="diff")
        assert (position.phase.value, position.since, position.snapshot) == ("range", 1, 3)
        keyed.commit([("+I", 20, "later")])
        left = changes(keyed.builder().with_range(1, 3, "diff").with_start(position=position))
        builder = keyed.builder().with_range(1, 3, "diff").with_limits(max_splits=1)
        with builder.new_streaming_scan() as scan:
            first = rows(builder.new_read(), available(scan)[0])
        assert sorted([*first, *left]) == changes(keyed.builder().with_range(1, 3, "diff"))
        assert first and left

    def test_after_it_there_is_nothing(self, keyed: Table) -> None:
        position = self.position(keyed, 1, 3, plans=2, mode="diff")
        keyed.commit([("+I", 20, "later")])
        assert changes(keyed.builder().with_range(1, 3, "diff").with_start(position=position)) == []

    def test_its_first_snapshots_may_expire_meanwhile(self, table: Table) -> None:
        position = self.position(table, 2, 6, plans=2)
        ends = EPOCH, time_of(table, 6)
        timed = self.position(table, *ends, plans=2)
        table.expire(5)
        assert found_at(table, position, 2, 6) == [4, 5]
        assert found_at(table, timed, *ends) == [4, 5]
        table.expire(6)
        for given in ((2, 6), ends):
            with pytest.raises(PositionExpiredError):
                found_at(table, position, *given)

    def test_a_difference_needs_the_state_before_to_the_end(self, keyed: Table) -> None:
        ends = time_of(keyed, 1), time_of(keyed, 3)
        positions = [self.position(keyed, *given, mode="diff") for given in ((1, 3), ends)]
        keyed.expire(2)
        for given, position in zip(((1, 3), ends), positions, strict=True):
            with pytest.raises(PositionExpiredError, match="Snapshot 1 has expired"):
                changes(keyed.builder().with_range(*given, "diff").with_start(position=position))

    def test_a_scan_can_be_sought(self, table: Table) -> None:
        builder = table.builder().with_range(2, 6)
        with builder.new_streaming_scan() as scan:
            assert keys(builder.new_read(), available(scan)) == [2, 3, 4, 5]
            scan.restore(5)
            assert keys(builder.new_read(), available(scan)) == [4, 5]
            scan.restore(None)
            assert keys(builder.new_read(), available(scan)) == [2, 3, 4, 5]

    def test_a_position_elsewhere_is_refused(self, table: Table, keyed: Table) -> None:
        inside = self.position(keyed, 1, 3, mode="diff")
        other = Position(inside.table, 2)
        for ends, position in (((2, 3, "diff"), inside), ((1, 3), inside), ((2, 3), other), ((0, 3, "diff"), other)):
            with pytest.raises((StreamConfigError, PositionExpiredError)):
                changes(keyed.builder().with_range(*ends).with_start(position=position))
        with pytest.raises(StreamConfigError, match="inside a range that is one plan"):
            changes(keyed.builder().with_start(position=inside).with_end(latest=True))
        with pytest.raises(TableChangedError, match="another table"):
            changes(table.builder().with_range(3, 5).with_start(position=inside))

    def test_a_rollback_is_found(self, keyed: Table) -> None:
        position = self.position(keyed, 1, 3, mode="diff")
        keyed.rollback(2)
        keyed.commit([("+U", 3, "other")])
        with pytest.raises(TableChangedError, match="rolled back"):
            changes(keyed.builder().with_range(1, 3, "diff").with_start(position=position))

    def test_a_manifest_that_is_missing_is_a_typed_error(self, table: Table) -> None:
        gone = table.path / "manifest" / table.snapshot(5)["deltaManifestList"]
        gone.unlink()
        with pytest.raises(CorruptTableError, match=f"{gone.name}.*snapshot 5 needs it"):
            found(table, 3, 6)
        with pytest.raises(CorruptTableError, match="is missing"):
            found(table, 3, 5, "diff")

    async def test_on_an_event_loop(self, table: Table) -> None:
        async with table.builder().with_range(2, 6).open() as stream:
            assert [key async for batch in stream for key in batch.data["k"].to_pylist()] == [2, 3, 4, 5]


def found_at(table: Table, position: Position, *ends: Any) -> list[int]:
    return sorted(key for _, key, _ in changes(table.builder().with_range(*ends).with_start(position=position)))
