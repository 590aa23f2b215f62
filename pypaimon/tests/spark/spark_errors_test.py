"""What errors and warnings say in Spark: the table, the checkpoint, options of the source, and no calls of Python."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

import pyarrow as pa
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.spark.errors import ErrorContext, readable_errors
from pypaimon.streaming import (
    PaimonStreamError,
    PositionExpiredError,
    SchemaChangedError,
    StreamConfigError,
    TableChangedError,
)
from pypaimon.streaming.commit.ledger import QueryReusedError
from pypaimon.streaming.errors import BatchOrderError, CommitUnknownError
from pypaimon.streaming.writing.pending_rows import kind_column
from support.spark.driver import Driver, batch_rows
from support.tables.streamed_table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Two snapshots."""
    return Table(tmp_path / "warehouse").commit_each((1, 2))


def text_of(caught: pytest.ExceptionInfo[PaimonStreamError]) -> str:
    """The message, which names the table, and is the first line that Spark shows."""
    text = str(caught.value)
    assert text.startswith("db.t: ")
    assert str(caught.value.__cause__) == text
    assert not [word for word in ("with_", "on_expired", "on_schema_change", "new stream") if word in text]
    return text


def test_an_expired_checkpoint_names_its_directory_and_what_to_set(table: Table) -> None:
    driver = Driver(table, start="earliest", maxRowsPerTrigger="1")
    start = driver.latest(driver.initial())
    table.commit([3])
    table.expire(3)
    with pytest.raises(PositionExpiredError) as caught:
        Driver(table).latest(start)
    text = text_of(caught)
    assert "Snapshot 2 has expired" in text and "'checkpointLocation'" in text and "'consumer-id'" in text
    assert "Set option 'failOnDataLoss' = 'false'" in text


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (
            CommitUnknownError("query", 7, "it is gone"),
            "'assume-committed' = '7' if they are, or 'assume-missing' = '7'",
        ),
        (BatchOrderError("query", 7, 9), "Start the query with a new checkpoint"),
        (QueryReusedError("query", 7), "Give the new query a 'query-id' of its own"),
    ],
)
def test_errors_of_commits_say_what_to_do_with_the_query(error: PaimonStreamError, advice: str) -> None:
    assert "'query-id'" not in str(error) and "assume" not in str(error) and "checkpoint" not in str(error)
    with (
        pytest.raises(type(error), match=r"^db\.t: Commit 7 of 'query' ") as caught,
        readable_errors(ErrorContext("db.t")),
    ):
        raise error
    assert advice in str(caught.value) and "Nothing was committed. " in str(caught.value)


@pytest.mark.parametrize(
    "error",
    [TableChangedError("s3://key:hushhush@bucket/t was replaced.", advice="Check it."), PositionExpiredError(1, 2, 3)],
)
def test_no_text_that_spark_shows_has_the_password_of_a_path(error: PaimonStreamError) -> None:
    context = ErrorContext.of({"path": "s3://key:hushhush@bucket/t"}, streaming=True)
    with pytest.raises(type(error)) as caught, readable_errors(context):
        raise error
    assert "s3://***@bucket/t" in str(caught.value)
    assert "hushhush" not in "".join(traceback.format_exception(caught.value))


def test_what_does_not_help_is_not_advised() -> None:
    needed = PositionExpiredError(1, 2, 3, earliest_needs_it=True)
    told = ErrorContext("db.t", streaming=True).message(needed)
    assert "'failOnDataLoss' does not help here" in told and "'checkpointLocation'" in told
    lossy = ErrorContext.of({"table": "db.t", "failOnDataLoss": "FALSE"}, streaming=True)
    assert "'failOnDataLoss' does not help here" in lossy.message(PositionExpiredError(1, 2, 3))


def test_an_expired_snapshot_of_a_batch_has_no_checkpoint(table: Table) -> None:
    table.expire(2)
    with pytest.raises(PositionExpiredError) as caught:
        batch_rows(table, scan__snapshot_id="1")
    text = text_of(caught)
    assert "Read a snapshot that exists" in text and "checkpoint" not in text


def test_a_checkpoint_of_another_table_is_named(table: Table) -> None:
    driver = Driver(table)
    start = driver.latest(driver.initial())
    table.recreate()
    table.commit([9])
    with pytest.raises(TableChangedError) as caught:
        Driver(table).latest(start)
    text = text_of(caught)
    assert "another table" in text and "'checkpointLocation'" in text and "give the query its own" in text


def test_a_checkpoint_of_a_table_that_was_rolled_back_is_named(table: Table) -> None:
    table.commit([3])
    driver = Driver(table)
    start = driver.latest(driver.initial())
    table.rollback(1)
    with pytest.raises(TableChangedError) as caught:
        Driver(table).latest(start)
    assert "'checkpointLocation'" in text_of(caught)


def test_a_changed_schema_asks_for_another_load_and_keeps_the_checkpoint(table: Table) -> None:
    driver = Driver(table)
    start = driver.latest(driver.initial())
    table.catalog.alter_table(table.name, [SchemaChange.add_column("w", AtomicType("INT"))], False)
    table._writer = table.handle()
    table.write(pa.table({"k": [9], "v": ["x"], "w": pa.array([1], pa.int32())}))
    with pytest.raises(SchemaChangedError) as caught:
        driver.latest(start)
    assert "Call load() again" in text_of(caught)


@pytest.mark.parametrize("consumer", ["a/b", "x.first-plan"])
def test_a_bad_consumer_names_its_option(table: Table, consumer: str) -> None:
    with pytest.raises(StreamConfigError) as caught:
        Driver(table, consumer_id=consumer)
    assert text_of(caught).startswith("db.t: Option 'consumer-id': consumer id")


def test_a_batch_without_row_kinds_warns_of_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keyed = Table(tmp_path / "warehouse", "pk", primary_key=True)
    keyed.commit([("+I", 1, "a")])
    keyed.commit([("-D", 1, "a"), ("+I", 2, "b")])
    with caplog.at_level(logging.WARNING):
        assert batch_rows(keyed, mode="rows", columns="k") == [(2,)]
        batch_rows(keyed, mode="rows", incremental_between="1,2")
        assert not caplog.records
        Driver(keyed, mode="rows").batches()
    assert "deletes and old rows are given as plain rows" in caplog.text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Leave the column out with with_projection(...).", "Leave the column out with option 'columns'."),
        ("with_on_overwrite('fail') is set.", "Option 'on-overwrite' = 'fail' is set."),
        ("Accept that with with_filter(..., unmatched='drop').", "Accept that with option 'unmatched' = 'drop'."),
        ("with_raw(True) reads the records.", "Option 'raw' = 'true' reads the records."),
    ],
)
def test_options_stand_for_calls_of_python(text: str, shown: str) -> None:
    with pytest.raises(StreamConfigError) as caught, readable_errors(ErrorContext("db.t")):
        raise StreamConfigError(text)
    assert text_of(caught) == f"db.t: {shown}"


def test_an_overwrite_that_is_not_to_be_read_names_the_option(table: Table) -> None:
    driver = Driver(table, start="latest", **{"on-overwrite": "fail"})
    start = driver.initial()
    table.commit([9], overwrite=True)
    with pytest.raises(TableChangedError) as caught:
        driver.latest(start)
    assert "option 'on-overwrite' = 'fail' is set" in text_of(caught)


def test_two_columns_of_row_kinds_name_the_option() -> None:
    with pytest.raises(StreamConfigError) as caught, readable_errors(ErrorContext("db.t")):
        kind_column({"rowkind.field": "a"}, "b")
    assert text_of(caught).startswith("db.t: Option 'row-kind-column': got 'b'")
