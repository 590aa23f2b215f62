"""Values are in files as they were given, wherever one file ends and the next one begins."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import stream_write_builder
from support.tables.handles import create_table

pytestmark = pytest.mark.slow

ENTRY = pa.struct([("a", pa.int32()), ("t", pa.list_(pa.string()))])
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, None, False]),
    "text": (pa.string(), [None, "", "xyz"]),
    "bytes": (pa.binary(), [b"", None, b"z", b"zz"]),
    "decimal": (pa.decimal128(10, 2), [Decimal("1.23"), None, Decimal("-4.00"), None, Decimal("0.01")]),
    "list": (pa.list_(pa.int32()), [None, [], [1, None]]),
    "lists": (pa.list_(pa.list_(pa.int32())), [[[1], None, []], None, [], [None]]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", None)], None, []]),
    "struct": (ENTRY, [None, {"a": 1, "t": ["q", None]}, {"a": None, "t": None}, {"a": 2, "t": []}]),
    "struct_in_struct": (pa.struct([("x", ENTRY)]), [{"x": None}, None, {"x": {"a": 3, "t": None}}]),
    "structs": (pa.list_(ENTRY), [[None, {"a": 1, "t": None}], None, [], [{"a": None, "t": ["u"]}], [None]]),
    "map_of_structs": (pa.map_(pa.string(), ENTRY), [[("k", None), ("l", {"a": 5, "t": []})], [], None]),
}
ROWS = 59


@pytest.mark.parametrize("keyed", [False, True], ids=["append", "keyed"])
@pytest.mark.parametrize("format_", ["parquet", "orc", "avro"])
def test_values_are_those_that_were_given_wherever_a_file_ends(warehouse: Any, format_: str, keyed: bool) -> None:
    columns = {name: pa.array((values * ROWS)[:ROWS], kind) for name, (kind, values) in COLUMNS.items()}
    given = pa.table({"k": pa.array(range(ROWS), pa.int64()), **columns})
    schema = pa.schema([given.schema.field("k").with_nullable(False), *list(given.schema)[1:]])
    options = {"file.format": format_, "target-file-row-num": "7"}
    keys: dict[str, Any] = {"primary_keys": ["k"], "options": {**options, "bucket": "1"}}
    table = create_table(warehouse, "t", schema, **(keys if keyed else {"options": options}))
    with stream_write_builder(table).open_sync() as writer:
        writer.write(given.slice(3, 30))
        writer.write(given.slice(33))
        writer.commit()
    builder = table.new_read_builder()
    splits = builder.new_scan().plan().splits()
    assert sum(len(split.files) for split in splits) == 8
    found = builder.new_read().to_arrow(splits).sort_by("k")
    assert found.select(given.schema.names).to_pylist() == given.slice(3).to_pylist()
