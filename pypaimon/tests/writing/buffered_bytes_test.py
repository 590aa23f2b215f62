"""What a writer holds in memory."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pypaimon import Schema

from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.system_columns import VALUE_KIND
from pypaimon.streaming.writing.record_writer import RecordWriter

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("p", pa.int32()), ("v", pa.string())])


@pytest.mark.parametrize("keyed", [False, True])
def test_buffered_bytes_are_those_of_the_rows_in_no_file(warehouse: Any, keyed: bool) -> None:
    keys = {"primary_keys": ["id"], "options": {"bucket": "2"}} if keyed else {}
    warehouse.create_table("db.t", Schema.from_pyarrow_schema(COLUMNS, **keys), False)
    writer = RecordWriter(PaimonTable(warehouse.get_table("db.t")), "user", False)
    assert writer.buffered_bytes == 0
    batch = pa.record_batch([range(1000), [1] * 1000, ["x" * 100] * 1000], schema=COLUMNS)
    if keyed:
        kinds = pa.array([0] * 1000, pa.int8())
        batch = batch.append_column(pa.field(VALUE_KIND, pa.int8(), nullable=False), kinds)
    writer.write(batch)
    once = writer.buffered_bytes
    assert once >= 100_000
    writer.write(batch)
    assert writer.buffered_bytes >= 2 * once
    writer.prepare()
    assert writer.buffered_bytes == 0
