"""Files of primary-key tables: all records as changelog, one of each key as data, and metadata that is true."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pypaimon.streaming.merge.engines.factory import merge_engine
from pypaimon.streaming.model.system_columns import SEQUENCE_NUMBER, VALUE_KIND
from pypaimon.streaming.writing.write_state import WriteState
from support.samples import SOAK, seeded
from support.tables.handles import create_table
from support.tables.written_rows import recount, rows_of, stored, write

pytestmark = [pytest.mark.slow, pytest.mark.soak]

COLUMNS = pa.schema([pa.field("k", pa.string(), False), ("s", pa.int64()), ("v", pa.int64()), ("w", pa.string())])
OPTIONS: list[dict[str, str]] = [
    {},
    {"sequence.field": "s"},
    {"sequence.field": "s", "sequence.field.sort-order": "descending"},
    {"merge-engine": "partial-update", "fields.s.sequence-group": "v,w"},
    {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
]
RECORD = st.tuples(
    st.integers(0, 3),
    st.tuples(
        st.sampled_from(["", "a", "b", "ä", "a\0"]),
        st.none() | st.integers(0, 2),
        st.none() | st.integers(-5, 5),
        st.none() | st.sampled_from("xy"),
    ),
)
_names = itertools.count()


@pytest.mark.parametrize("options", OPTIONS)
@settings(max_examples=10 if SOAK else 5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(st.lists(RECORD, min_size=1, max_size=6), min_size=1, max_size=4),
    bound=st.sampled_from([0, 200, 1 << 20]),
    target=st.sampled_from(["1 b", "1 kb", "1 mb"]),
)
def test_every_record_is_logged_in_order_and_the_data_are_merged(
    warehouse: Any, options: dict[str, str], batches: list[list[Any]], bound: int, target: str
) -> None:
    """Whatever the batches and the flushes between them."""
    given_ = {"bucket": "1", "changelog-producer": "input", "target-file-size": target, **options}
    table = create_table(warehouse, f"t{next(_names)}", COLUMNS, primary_keys=["k"], options=given_)
    retractions = merge_engine(table.table_schema).retractions
    batches = [[(kind if kind in (0, 2) or kind in retractions else 0, row) for kind, row in each] for each in batches]
    given_batches = [rows_of(COLUMNS, [row for _, row in each], [kind for kind, _ in each]) for each in batches]
    (message,) = write(table, *given_batches, state=WriteState(sequence=41), buffer_bytes=bound)
    for file in (*message.new_files, *message.changelog_files):
        recount(table, file)
    logged = [record for file in message.changelog_files for record in stored(file.file_path).to_pylist()]
    logged.sort(key=lambda record: record[SEQUENCE_NUMBER])
    sent = [record for batch in batches for record in batch]
    assert [record[SEQUENCE_NUMBER] for record in logged] == [42 + index for index in range(len(sent))]
    assert [(record[VALUE_KIND], tuple(record[name] for name in COLUMNS.names)) for record in logged] == sent
    for kind_of_file in (message.new_files, message.changelog_files):
        for file in kind_of_file:
            keys = [key.encode() for key in stored(file.file_path)["_KEY_k"].to_pylist()]
            assert keys == sorted(keys)
            assert kind_of_file is message.changelog_files or len(set(keys)) == len(keys)
    if not options:
        # The newest record of each key of a flush; later flushes have greater numbers.
        newest: dict[str, Any] = {}
        for file in message.new_files:
            for record in stored(file.file_path).to_pylist():
                before = newest.get(record["k"])
                if before is None or before[SEQUENCE_NUMBER] < record[SEQUENCE_NUMBER]:
                    newest[record["k"]] = record
        expected = {row[0]: (kind, row) for kind, row in sent}
        found = {k: (r[VALUE_KIND], tuple(r[name] for name in COLUMNS.names)) for k, r in newest.items()}
        assert found == expected


def test_an_overwrite_has_no_changelog(warehouse: Any) -> None:
    options = {"bucket": "1", "changelog-producer": "input"}
    table = create_table(warehouse, "t", COLUMNS, primary_keys=["k"], options=options)
    (message,) = write(table, rows_of(COLUMNS, [("a", 1, 1, "x")], [0]), overwrite=True)
    assert not message.changelog_files


@pytest.mark.parametrize("producer", ["none", "lookup", "full-compaction"])
def test_only_the_producer_input_logs(warehouse: Any, producer: str) -> None:
    options = {"bucket": "1", "changelog-producer": producer}
    table = create_table(warehouse, "t", COLUMNS, primary_keys=["k"], options=options)
    (message,) = write(table, rows_of(COLUMNS, [("a", 1, 1, "x"), ("a", 2, 2, "y")], [0, 3]))
    assert not message.changelog_files
    (file,) = message.new_files
    assert (file.row_count, file.delete_row_count) == (1, 1)


@pytest.mark.parametrize("order", ["in order", "in reverse", "shuffled"])
@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[4]], ids=["deduplicate", "aggregation"])
def test_files_do_not_depend_on_how_their_rows_were_sorted(
    warehouse: Any, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], order: str
) -> None:
    """Without a sequence field rows in order are not sorted, and others are sorted as numbers. A sequence field that
    counts the rows leads to the same files. So do many calls of one row, whose rows reach a file in one chunk.
    """
    columns = pa.schema(
        [pa.field("k", pa.int32(), False), pa.field("l", pa.int32(), False), ("s", pa.int64()), ("v", pa.int64())]
    )
    keys = [(-number // 3, number % 2) for number in range(600)]
    if order == "shuffled":
        seeded("rows to sort").shuffle(keys)
    else:
        keys.sort(reverse=order == "in reverse")
    rows = rows_of(columns, [(*key, number, number % 7) for number, key in enumerate(keys)], [0] * len(keys))
    chunks: list[int] = []
    write_table = pq.ParquetWriter.write_table

    def counted(writer: Any, data: pa.Table, *arguments: Any) -> None:
        chunks.extend(column.num_chunks for column in data.columns)
        write_table(writer, data, *arguments)

    monkeypatch.setattr(pq.ParquetWriter, "write_table", counted)
    found = []
    for sequence, rows_of_a_call in itertools.product([{}, {"sequence.field": "s"}], [1, len(keys)]):
        given_ = {"bucket": "1", "changelog-producer": "input", **options, **sequence}
        table = create_table(warehouse, f"t{next(_names)}", columns, primary_keys=["k", "l"], options=given_)
        calls = [rows.slice(first, rows_of_a_call) for first in range(0, len(keys), rows_of_a_call)]
        (message,) = write(table, *calls)
        files = (*message.new_files, *message.changelog_files)
        for file in files:
            recount(table, file)
            data = stored(file.file_path)
            assert data["_KEY_k"] == data["k"] and data["_KEY_l"] == data["l"]
            assert data == data.sort_by([(name, "ascending") for name in ("k", "l", SEQUENCE_NUMBER)])
        found.append([Path(file.file_path).read_bytes() for file in files])
    assert len(found[0]) == 2 and all(each == found[0] for each in found)
    assert set(chunks) == {1}


def test_a_thin_file_has_no_copies_of_the_key(warehouse: Any) -> None:
    options = {"bucket": "1", "data-file.thin-mode": "true"}
    table = create_table(warehouse, "t", COLUMNS, primary_keys=["k"], options=options)
    (message,) = write(table, rows_of(COLUMNS, [("b", 1, 1, "x"), ("a", 2, 2, "y")], [0, 0]))
    (file,) = message.new_files
    assert stored(file.file_path).schema.names == [SEQUENCE_NUMBER, VALUE_KIND, *COLUMNS.names]
    recount(table, file)


def test_a_key_of_nanoseconds_is_shown_exactly(warehouse: Any) -> None:
    schema = pa.schema([pa.field("k", pa.timestamp("ns"), False), pa.field("i", pa.int32(), False), ("v", pa.int64())])
    table = create_table(warehouse, "t", schema, primary_keys=["k", "i"], options={"bucket": "1"})
    moments = [-1, 1_700_000_000_123_456_789]
    (message,) = write(table, rows_of(schema, [(moment, 7, 0) for moment in moments], [0, 0]))
    (file,) = message.new_files
    for key, moment in zip((file.min_key, file.max_key), moments, strict=True):
        slot = int.from_bytes(key.data[4 + 8 : 4 + 16], "little")
        place = 4 + (slot >> 32)
        millis = int.from_bytes(key.data[place : place + 8], "little", signed=True)
        assert millis * 1_000_000 + (slot & 0xFFFFFFFF) == moment
        assert key.get_field(1) == 7


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_records_of_a_key_are_in_the_order_of_the_sequence_fields(warehouse: Any, order: str) -> None:
    """The first of them counts most, a null is the oldest in either direction, and equal ones lie as they came."""
    options = {
        "bucket": "1",
        "changelog-producer": "input",
        "sequence.field": "s,v",
        "sequence.field.sort-order": order,
    }
    table = create_table(warehouse, "t", COLUMNS, primary_keys=["k"], options=options)
    pairs = [(2, 1), (None, 2), (1, 3), (2, None), (1, 2), (1, 3)]
    (message,) = write(table, rows_of(COLUMNS, [("a", *pair, "") for pair in pairs], [0] * len(pairs)))
    (changelog,), (file,) = message.changelog_files, message.new_files
    records = stored(changelog.file_path)
    expected = {"ascending": [1, 4, 2, 5, 3, 0], "descending": [1, 3, 0, 2, 5, 4]}[order]
    assert records[SEQUENCE_NUMBER].to_pylist() == expected
    assert stored(file.file_path)[SEQUENCE_NUMBER].to_pylist() == expected[-1:]
