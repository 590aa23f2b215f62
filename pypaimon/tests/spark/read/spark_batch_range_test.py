"""Ranges of batch reads, without Spark: what a range may be, and which rows of it come out."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import (
    CorruptTableError,
    IncrementalDiffScanner,
    PositionBeyondLatestError,
    PositionExpiredError,
    StreamConfigError,
    UnsupportedTableError,
)
from support.spark.driver import batch_rows
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

DIFF = {"incremental_between_scan_mode": "diff", "columns": "k,v"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Six snapshots of an append table, of which the first two have expired."""
    table = Table(tmp_path / "warehouse").commit_each(range(6))
    table.handle().create_tag("four", 4)
    table.expire(3)
    return table


@pytest.fixture
def keyed(tmp_path: Path) -> Table:
    """A table with the changelog producer lookup that was never compacted."""
    table = Table(tmp_path / "warehouse", "pk", primary_key=True, changelog_producer="lookup", bucket="1")
    table.commit([("+I", 1, "a"), ("+I", 2, "a"), ("+I", 3, "a")])
    table.commit([("+U", 1, "b"), ("-D", 2, "a"), ("+I", 4, "a")])
    return table


def keys(table: Table, **more: str) -> list[int]:
    return sorted(row[0] for row in batch_rows(table, **more))


def test_a_range_may_begin_just_before_the_earliest_snapshot(table: Table) -> None:
    assert keys(table, incremental_between="2,6") == [2, 3, 4, 5]
    assert keys(table, incremental_between="5,6") == [5]
    assert keys(table, incremental_between="6,6") == []
    times = [table.snapshot(each)["timeMillis"] for each in (3, 6)]
    for first in (0, times[0] - 1):
        assert keys(table, incremental_between_timestamp=f"{first},{times[1]}") == [2, 3, 4, 5]
    assert keys(table, incremental_between_timestamp="0,1") == []
    assert keys(table, incremental_between_timestamp="1970-01-01,2100-01-01 00:00:00") == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("more", "error", "text"),
    [
        ({"incremental_between": "1,6"}, PositionExpiredError, "Snapshot 2 has expired"),
        ({"incremental_between": "-1,6"}, PositionExpiredError, "has expired"),
        ({"incremental_between": "5,7"}, PositionBeyondLatestError, "Snapshot 7 is beyond the latest"),
        ({"incremental_between": "6,5"}, StreamConfigError, "swap them"),
        ({"incremental_between": "four,6"}, StreamConfigError, "neither two tags nor two snapshot ids; tags are: four"),
        ({"incremental_between": "3"}, StreamConfigError, "give two snapshots or tags"),
        ({"incremental_between_timestamp": "3"}, StreamConfigError, "give two times"),
        ({"incremental_between_timestamp": "2,1"}, StreamConfigError, "swap them"),
        ({"incremental_between_timestamp": "soon,later"}, StreamConfigError, "soon"),
        ({"incremental_between": "2,6", **DIFF}, PositionExpiredError, "Snapshot 2 has expired"),
        (
            {"incremental_between": "four,four", "incremental_between_tag_to_snapshot": "true", **DIFF},
            StreamConfigError,
            "contradict",
        ),
    ],
)
def test_an_invalid_range_is_refused(table: Table, more: dict[str, str], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        batch_rows(table, **more)


def test_tags_are_states_or_stand_for_their_ids(table: Table) -> None:
    table.handle().create_tag("six", 6)
    table.write(pa.table({"k": [9], "v": ["x"]}), overwrite=True)
    table.handle().create_tag("end", 7)
    assert keys(table, incremental_between="four,six") == [4, 5]
    assert keys(table, incremental_between="four,end") == [9]
    as_ids = {"incremental_between_tag_to_snapshot": "true"}
    assert keys(table, incremental_between="four,end", **as_ids) == [4, 5]
    assert keys(table, incremental_between="end,four", **as_ids) == []
    for number in (3, 4, 5):
        table.snapshot_path(number).unlink()
    (table.path / "snapshot" / "EARLIEST").write_text("6")
    assert keys(table, incremental_between="four,six", incremental_between_scan_mode="delta") == [4, 5]
    with pytest.raises(PositionExpiredError):
        batch_rows(table, incremental_between="four,six", **as_ids)


def test_an_automatic_tag_is_the_difference_to_the_one_before(table: Table) -> None:
    for name, number in (("2026-01-30 23", 3), ("2026-01-31 01", 5)):
        table.handle().create_tag(name, number)
    table.catalog.alter_table(table.name, [SchemaChange.set_option("tag.creation-period", "hourly")], False)
    assert keys(table, incremental_to_auto_tag="2026-01-31 01") == [3, 4]
    assert keys(table, incremental_to_auto_tag="2026-01-30 23") == []
    with pytest.raises(StreamConfigError, match="'four' is not an auto-created tag"):
        batch_rows(table, incremental_to_auto_tag="four")
    with pytest.raises(StreamConfigError, match="are both set"):
        batch_rows(table, incremental_to_auto_tag="2026-01-31 01", incremental_between="3,5")


def test_a_manifest_that_is_missing_is_a_typed_error(table: Table) -> None:
    gone = table.path / "manifest" / table.snapshot(5)["deltaManifestList"]
    gone.unlink()
    with pytest.raises(CorruptTableError, match=f"{gone.name}.*snapshot 5 needs it"):
        batch_rows(table, incremental_between="3,6")
    with pytest.raises(CorruptTableError, match="is missing"):
        batch_rows(table, scan__snapshot_id="5")


def test_a_difference_holds_what_no_compaction_has_made_changelog_of(keyed: Table) -> None:
    told = [("+I", 4, "a"), ("+U", 1, "b"), ("-D", 2, "a"), ("-U", 1, "a")]
    assert sorted(batch_rows(keyed, incremental_between="1,2", **DIFF)) == told
    values = {**DIFF, "mode": "rows"}
    assert sorted(batch_rows(keyed, incremental_between="1,2", **values)) == [(1, "b"), (4, "a")]
    assert sorted(batch_rows(keyed, incremental_between="1,2", filter="k > 1", **DIFF)) == [told[0], told[2]]


def test_a_row_that_changed_in_another_column_is_part_of_a_difference(tmp_path: Path) -> None:
    table = Table(tmp_path / "warehouse", "pk", primary_key=True, bucket="1")
    table.commit([("+I", 1, "a"), ("+I", 2, "a")])
    table.commit([("+I", 1, "b"), ("+I", 2, "a")], overwrite=True)
    more = {"incremental_between": "1,2", "incremental_between_scan_mode": "diff", "mode": "rows"}
    assert batch_rows(table, columns="k", **more) == [(1,)]


def test_a_filter_of_a_difference_is_one_of_both_states_or_of_the_rows_that_come_out(tmp_path: Path) -> None:
    table = Table(tmp_path / "warehouse", "pk", primary_key=True, bucket="1")
    table.commit([("+I", 1, "a"), ("+I", 2, "a"), ("+I", 3, "a")])
    table.commit([("+I", 1, "b"), ("+I", 2, "a"), ("+I", 4, "a")], overwrite=True)
    rows = sorted(batch_rows(table, incremental_between="1,2", **DIFF))
    came, changed, gone, changed_from = ("+I", 4, "a"), ("+U", 1, "b"), ("-D", 3, "a"), ("-U", 1, "a")
    assert rows == [came, changed, gone, changed_from]
    for text, kept, plain in (
        ("v = 'a'", [came, ("-D", 1, "a"), gone], [came]),
        ("v = 'b'", [("+I", 1, "b")], [changed]),
        ("k > 1", [came, gone], [came]),
    ):
        filtered = {"incremental_between": "1,2", "filter": text, **DIFF}
        assert sorted(batch_rows(table, **filtered)) == kept
        assert batch_rows(table, **filtered, mode="rows") == [row[1:] for row in plain]


def test_a_changelog_is_that_of_all_snapshots_but_overwrites(tmp_path: Path) -> None:
    table = Table(tmp_path / "warehouse", "pk", primary_key=True, bucket="1", changelog_producer="input")
    for number in range(3):
        table.commit([("+I", number, "a")])
    for number, kind in ((2, "OVERWRITE"), (3, "COMPACT")):
        table.snapshot_path(number).write_text(json.dumps({**table.snapshot(number), "commitKind": kind}))
    assert batch_rows(table, incremental_between="0,3", columns="k") == [("+I", 0), ("+I", 2)]


def test_states_with_other_buckets_are_not_compared(tmp_path: Path) -> None:
    table = Table(tmp_path / "warehouse", "pk", primary_key=True, bucket="1")
    table.commit([("+I", 1, "a")])
    table.catalog.alter_table(table.name, [SchemaChange.set_option("bucket", "2")], False)
    table.commit([("+I", 1, "b")], overwrite=True, table=table.handle())
    with pytest.raises(UnsupportedTableError, match="number of buckets"):
        batch_rows(table, incremental_between="1,2", **DIFF)


def test_columns_written_in_the_range_are_joined_to_the_rows_appended_in_it(tmp_path: Path) -> None:
    table = Table(tmp_path / "warehouse", row_tracking__enabled="true", data_evolution__enabled="true")
    table.commit([(1, "a"), (2, "b")])
    update(table, pa.table({"v": ["A", "B"]}))
    assert sorted(batch_rows(table, incremental_between="0,2")) == [(1, "A"), (2, "B")]
    assert sorted(batch_rows(table, incremental_between="1,2"), key=str) == [(None, "A"), (None, "B")]
    with pytest.raises(UnsupportedTableError, match="data evolution"):
        batch_rows(table, incremental_between="1,2", incremental_between_scan_mode="diff")
    with pytest.raises(UnsupportedTableError, match="data evolution"):
        IncrementalDiffScanner(table.handle()).scan(1, 2)


def update(table: Table, columns: pa.Table) -> None:
    """Write columns anew, of all rows."""
    builder = table.handle().new_batch_write_builder()
    writer = builder.new_write().with_write_type(columns.column_names)
    writer.write_arrow(columns)
    messages = writer.prepare_commit()
    for message in messages:
        for file in message.new_files:
            file.first_row_id = 0
    builder.new_commit().commit(messages)
    writer.close()


def test_a_range_holds_what_was_committed_and_not_what_was_compacted(table: Table) -> None:
    table.snapshot_path(4).write_text(json.dumps(table.snapshot(4) | {"commitKind": "COMPACT"}))
    assert keys(table, incremental_between="2,6", incremental_between_scan_mode="delta") == [2, 4, 5]


def test_a_difference_of_times_begins_with_nothing_only_where_nothing_has_expired(keyed: Table) -> None:
    def found(end: int) -> list[int]:
        times = f"0,{keyed.snapshot(end)['timeMillis']}"
        return sorted(row[1] for row in batch_rows(keyed, incremental_between_timestamp=times, **DIFF))

    assert found(2) == [1, 3, 4]
    keyed.commit([("+I", 5, "a")])
    keyed.expire(2)
    assert found(3) == [5]
