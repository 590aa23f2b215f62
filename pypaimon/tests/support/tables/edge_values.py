"""Values whose order readers have got wrong, and tables of files whose bounds they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pypaimon import Schema
from pypaimon.schema.data_types import AtomicType, DataField

from pypaimon.streaming import stream_write_builder
from pypaimon.streaming.model.arrow_types import arrow_schema

_TIMES = [
    datetime(1, 1, 1),
    datetime(1969, 12, 31, 23, 59, 59),
    datetime(1970, 1, 1),
    datetime(2024, 3, 31, 1, 30, 0, 123000),
    datetime(9999, 12, 31, 23, 59, 59, 999000),
]
_MICROS = [*_TIMES, datetime(2024, 3, 31, 1, 30, 0, 123001)]
_FLOATS = [-math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, math.nan]
EDGES: dict[str, list[Any]] = {
    "BOOLEAN": [False, True],
    "INT": [-(2**31), -1, 0, 2**31 - 1],
    "BIGINT": [-(2**63), 0, 2**63 - 1],
    "FLOAT": _FLOATS,
    "DOUBLE": [*_FLOATS, 5e-324],
    "DECIMAL(10, 2)": [Decimal(each) for each in ("-99999999.99", "-1.28", "0.00", "0.01", "99999999.99")],
    "DECIMAL(38, 10)": [Decimal(each) for each in (f"-{'9' * 28}.{'9' * 10}", "-0.0000000128", "0.0000000129")],
    "CHAR(5)": ["", "a", "ab", "ab   ", "abcde"],
    # Cut after 16 characters; UTF-8 sorts the last two otherwise than UTF-16.
    "STRING": ["", "a" * 16, "a" * 16 + "b", "\ud7ff" * 17, "\U0010ffff" * 17, "\uffee", "\U0001f600"],
    "BYTES": [b"", b"\x00\x01", b"\x7f\x01", b"\xf0\x01", b"\xff" * 20],
    "BINARY(2)": [b"\x00\x01", b"\x7f\x01", b"\x80\x01"],
    "DATE": [date(1, 1, 1), date(1582, 10, 4), date(1970, 1, 1), date(9999, 12, 31)],
    "TIME(3)": [time(0), time(12, 34, 56, 789000), time(23, 59, 59, 999000)],
    "TIMESTAMP(0)": [each.replace(microsecond=0) for each in _TIMES],
    "TIMESTAMP(3)": _TIMES,
    "TIMESTAMP(6)": _MICROS,
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": [each.replace(tzinfo=timezone.utc) for each in _MICROS],
}


def fields(types: Sequence[str]) -> list[DataField]:
    """A number of the row, and a column of each type."""
    columns = [("k", "INT"), *((f"c{number}", each) for number, each in enumerate(types))]
    return [DataField(number, name, AtomicType(each)) for number, (name, each) in enumerate(columns)]


def fill(table: Any, types: Sequence[str]) -> pa.Table:
    """Write files of two values that follow each other, and one of nulls; gives all rows."""
    schema, written = arrow_schema(table.fields), list[pa.Table]()
    count = max(len(EDGES[each]) for each in types)
    with stream_write_builder(table).open_sync() as writer:
        for places in [
            *([number] for number in range(count)),
            *([number, number + 1] for number in range(count)),
            [-1],
        ]:
            first = sum(each.num_rows for each in written)
            cells = [[None if at < 0 else EDGES[each][at % len(EDGES[each])] for at in places] for each in types]
            rows = [range(first, first + len(places)), *cells]
            columns = [pa.array(values, field.type) for values, field in zip(rows, schema, strict=True)]
            written.append(pa.table(columns, schema=schema))
            writer.write(written[-1])
            writer.commit()
    return pa.concat_tables(written)


def edge_table(catalog: Any, name: str, types: Sequence[str], options: dict[str, str]) -> Any:
    """A table of `fields`."""
    catalog.create_table(f"db.{name}", Schema(fields=fields(types), options=options), False)
    return catalog.get_table(f"db.{name}")
