"""The stream source on real Spark: starts, batches, restarts, limits, row kinds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from support.spark.queries import Collected, frame
from support.tables.streamed_table import Table

pytestmark = [pytest.mark.spark, pytest.mark.soak]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """An append table."""
    return Table(tmp_path / "warehouse")


@pytest.fixture
def changing(tmp_path: Path) -> Table:
    """A table with a primary key."""
    return Table(tmp_path / "warehouse", "pk", primary_key=True)


@pytest.fixture
def collected(tmp_path: Path) -> Collected:
    """A sink with a checkpoint."""
    return Collected(tmp_path / "checkpoint")


def keys(rows: Any) -> list[int]:
    return sorted(row[0] for row in rows)


def test_a_stream_delivers_the_table_and_then_each_change_once(spark: Any, table: Table, collected: Collected) -> None:
    table.commit([1, 2])
    assert keys(collected.run(frame(spark, table))) == [1, 2]
    assert collected.run(frame(spark, table)) == []
    table.commit_each((3, 4))
    assert keys(collected.run(frame(spark, table))) == [3, 4]
    assert frame(spark, table).schema.simpleString() == "struct<k:bigint,v:string>"


def test_a_primary_key_stream_has_row_kinds_first(spark: Any, changing: Table, collected: Collected) -> None:
    changing.commit([("+I", 1, "a"), ("+I", 2, "b")])
    stream = frame(spark, changing, columns="k,v")
    assert stream.columns == ["_row_kind", "k", "v"]
    assert sorted(collected.run(stream)) == [("+I", 1, "a"), ("+I", 2, "b")]
    changing.commit([("-D", 1, "a"), ("+U", 2, "c")])
    assert sorted(collected.run(stream)) == [("+U", 2, "c"), ("-D", 1, "a")]


@pytest.mark.nightly
def test_an_empty_table_is_waited_for(spark: Any, table: Table, collected: Collected) -> None:
    assert collected.run(frame(spark, table)) == []
    table.commit([1])
    assert keys(collected.run(frame(spark, table))) == [1]


@pytest.mark.nightly
def test_latest_begins_after_the_latest_snapshot(spark: Any, table: Table, collected: Collected) -> None:
    table.commit([1])
    assert collected.run(frame(spark, table, start="latest")) == []
    table.commit([2])
    assert keys(collected.run(frame(spark, table, start="latest"))) == [2]


@pytest.mark.nightly
def test_latest_of_an_empty_table_begins_with_its_first_snapshot(
    spark: Any, table: Table, collected: Collected
) -> None:
    assert collected.run(frame(spark, table, start="latest")) == []
    table.commit_each((1, 2))
    assert keys(collected.run(frame(spark, table, start="latest"))) == [1, 2]


def test_two_streams_are_joined(spark: Any, table: Table, collected: Collected, tmp_path: Path) -> None:
    other = Table(tmp_path / "warehouse", "other")
    for left, right in ((1, 3), (2, 1), (3, 9)):
        table.commit([left])
        other.commit([(right, f"w{right}")])
    one_by_one = {"start": "earliest", "maxRowsPerTrigger": "1"}
    joined = frame(spark, table, **one_by_one).join(frame(spark, other, **one_by_one).withColumnRenamed("v", "w"), "k")
    assert sorted(collected.run(joined)) == [(1, "v1", "w1"), (3, "v3", "w3")]
    assert len([rows for rows in collected.batches.values() if rows]) == 2


def test_a_stream_with_state_of_its_own_continues_after_a_restart(
    spark: Any, table: Table, collected: Collected
) -> None:
    # In the test, so that it is pickled as a whole: Spark's workers do not import this module.
    class Counting(StatefulProcessor):
        """How many rows each key has had so far."""

        def init(self, handle: StatefulProcessorHandle) -> None:
            self.count = handle.getValueState("count", "count long")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            before = self.count.get()[0] if self.count.exists() else 0
            self.count.update((before + sum(len(each) for each in rows),))
            yield pd.DataFrame({"odd": [key[0]], "count": [self.count.get()[0]]})

        def close(self) -> None:
            """Nothing is open."""

    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    try:
        for keys_of_commit, expected in (([1, 2, 3], [(False, 1), (True, 2)]), ([5], [(True, 3)])):
            table.commit(keys_of_commit)
            keyed = frame(spark, table).selectExpr("k % 2 = 1 AS odd", "v").groupBy("odd")
            counted = keyed.transformWithStateInPandas(Counting(), "odd boolean, count long", "update", "None")
            assert sorted(collected.run(counted)) == expected
    finally:
        spark.conf.unset("spark.sql.streaming.stateStore.providerClass")


def test_available_now_from_a_tag_comes_as_far_as_the_table_or_says_why_not(
    spark: Any, table: Table, collected: Collected
) -> None:
    table.commit_each(range(3))
    table.handle().create_tag("one", 1)
    from_tag = {"start__tag": "one", "start__full": "true"}
    assert keys(collected.run(frame(spark, table, **from_tag))) == [0, 1, 2]
    table.commit([3])
    table.handle().delete_tag("one")
    assert keys(collected.run(frame(spark, table, **from_tag))) == [3]
    table.rollback(2)
    with pytest.raises(StreamingQueryException, match=r"PaimonSourceError: .*rolled back"):
        collected.run(frame(spark, table, **from_tag))


def test_a_query_of_a_table_that_is_being_dropped_does_not_end_well(
    spark: Any, table: Table, collected: Collected
) -> None:
    table.commit_each(range(2))
    stream = frame(spark, table)
    assert keys(collected.run(stream)) == [0, 1]
    for gone, message in (("snapshot", "is being dropped, or was emptied"), ("schema", "it was or is being dropped")):
        shutil.rmtree(table.path / gone)
        with pytest.raises(StreamingQueryException, match=f"PaimonSourceError: .*{message}"):
            collected.run(stream)
