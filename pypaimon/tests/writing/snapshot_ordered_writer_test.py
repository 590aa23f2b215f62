"""Tables with `sequence.snapshot-ordering`: the later snapshot has the newer record, and one of each key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pypaimon.streaming import stream_read_builder, stream_write_builder
from pypaimon.streaming.errors import UnsupportedTableError
from support.tables.handles import current_files
from support.tables.streamed_table import Table
from support.tables.written_tables import changes, key_value_table, rows

ORDERED = {"bucket": "1", "sequence.snapshot-ordering": "true", "write-only": "true"}


def state(table: Table) -> list[tuple[int, str]]:
    builder = stream_read_builder(table.handle()).with_start("latest-full").with_end(latest=True)
    with builder.new_streaming_scan() as scan:
        (plan,) = scan.stream_sync()
    found = builder.new_read().to_arrow(plan.splits())
    return sorted(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))


def test_the_later_commit_is_the_newer_one_whichever_wrote_first(tmp_path: Path) -> None:
    table = key_value_table(tmp_path, **ORDERED)
    with table.writer("first").open_sync() as first, table.writer("second").open_sync() as second:
        for _ in range(5):
            second.write(rows(2, value="more"))
        second.write(rows(1, 2, value="second"))
        first.write(changes(("+I", 1, "old"), ("+U", 1, "first"), ("-D", 3, "")))
        second.commit()
        first.commit()
    assert state(table) == [(1, "first"), (2, "second2")]
    files = current_files(table.handle())
    assert sorted((file.min_sequence_number, file.max_sequence_number) for file in files) == [(1, 1), (2, 2)]


def test_more_than_fits_into_memory_is_refused_before_a_file_is_written(tmp_path: Path) -> None:
    table = key_value_table(tmp_path, **ORDERED)
    limited = stream_write_builder(table.handle()).with_memory_limit(200)
    with limited.open_sync() as writer, pytest.raises(UnsupportedTableError, match=r"snapshot-ordering'.* 200 bytes"):
        for _ in range(20):
            writer.write(rows(1))
    assert not table.data_files()


def test_rows_of_one_commit_under_two_schemas_are_refused(tmp_path: Path) -> None:
    table = key_value_table(tmp_path, **ORDERED)
    before, after = ({"k": 1, "v": "a"}, {"k": 1, "v": "b", "more": 1})
    records = [json.dumps({"op": "c", "before": None, "after": each}) for each in (before, after)]
    with table.writer().open_sync() as writer:
        writer.write_changes(records[:1], "debezium-json")
        with pytest.raises(UnsupportedTableError, match="under two of its schemas"):
            writer.write_changes(records[1:], "debezium-json", on_new_column="add")
    assert not table.data_files()


def test_postponed_buckets_are_refused(tmp_path: Path) -> None:
    table = key_value_table(tmp_path, **{**ORDERED, "bucket": "-2"})
    with pytest.raises(UnsupportedTableError, match="postponed buckets"), table.writer().open_sync():
        pytest.fail("the writer opens")
