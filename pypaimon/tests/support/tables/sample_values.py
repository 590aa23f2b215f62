"""Values that readers have got wrong: those at the edges of types, and nested ones in the layouts that Arrow has."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pypaimon import Schema
from pypaimon.schema.data_types import AtomicType, DataField

from pypaimon.streaming import stream_write_builder
from pypaimon.streaming.model.arrow_types import arrow_schema

LEAVES: dict[pa.DataType, Sequence[Any]] = {
    pa.int32(): [0, 7, -(2**31)],
    pa.int64(): [0, 1, 2**40],
    pa.float64(): [0.0, -1.5],
    pa.bool_(): [True, False],
    pa.string(): ["", "a", "ü, and longer than twelve bytes"],
    pa.binary(): [b"", b"\x00\xff", b"longer than twelve bytes"],
    pa.decimal128(20, 2): [Decimal("0.00"), Decimal("-12345678901234.56")],
    pa.date32(): [date(1970, 1, 1), date(2024, 2, 29)],
    pa.time32("ms"): [time(0), time(12, 34, 56, 789000)],
    pa.timestamp("us"): [datetime(1970, 1, 1), datetime(2024, 2, 29, 12, 34, 56, 789)],
}
_MOST_ROWS = 5


class Boxed(pa.ExtensionType):
    """A type of an extension that nobody has registered."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "boxed")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Boxed:
        return cls(storage)


class ArrowRows:
    """Draws types, rows, and their layouts.

    Args:
        null_types: Whether columns of nothing but nulls may be of Arrow's type for these.
    """

    def __init__(
        self, source: random.Random, leaves: Sequence[pa.DataType] = tuple(LEAVES), *, null_types: bool = True
    ) -> None:
        self._source = source
        self._leaves = leaves
        self._null_types = null_types

    def field(self, depth: int, name: str = "c") -> pa.Field:
        """A field with at most so many levels of nesting."""
        shape = self._source.choice(["row", "row", "list", "map", "leaf"]) if depth else "leaf"
        kind: pa.DataType
        if shape == "row":
            count = self._source.randint(1, 3)
            kind = pa.struct([self.field(depth - 1, f"f{number}") for number in range(count)])
        elif shape == "list":
            kind = pa.list_(self.field(depth - 1, "element"))
        elif shape == "map":
            kind = pa.map_(pa.string(), self.field(depth - 1, "value"))
        else:
            kind = self._source.choice(self._leaves)
        return pa.field(name, kind, self._source.random() < 0.7)

    def rows(self, field: pa.Field, most: int = _MOST_ROWS) -> list[Any]:
        return [self.value(field) for _ in range(self._source.randint(0, most))]

    def value(self, field: pa.Field) -> Any:
        kind = field.type
        if field.nullable and self._source.random() < 0.3:
            return None
        if pa.types.is_struct(kind):
            return {part.name: self.value(part) for part in kind}
        if pa.types.is_map(kind):
            return [(key, self.value(kind.item_field)) for key in "ab"[: self._source.randint(0, 2)]]
        if pa.types.is_list(kind):
            return [self.value(kind.value_field) for _ in range(self._source.randint(0, 3))]
        return self._source.choice(LEAVES[kind])

    def laid_out(self, rows: Sequence[Any], field: pa.Field) -> pa.Array:
        return self._laid_out(list(rows), field, [True] * len(rows))

    def _laid_out(self, rows: list[Any], field: pa.Field, seen: list[bool]) -> pa.Array:
        """Rows, of which those that are not seen become anything, even null where that is not allowed."""
        before, after = self._source.randint(0, 2), self._source.randint(0, 2)
        rows = [row if shown else self._any(field) for row, shown in zip(rows, seen, strict=True)]
        rows = [*(self._any(field) for _ in range(before)), *rows, *(self._any(field) for _ in range(after))]
        return self._made(rows, field.type).slice(before, len(rows) - before - after)

    def _any(self, field: pa.Field) -> Any:
        return self.value(field.with_nullable(True))

    def _made(self, rows: list[Any], kind: pa.DataType) -> pa.Array:
        if pa.types.is_struct(kind):
            array = self._rows(rows, kind)
        elif pa.types.is_map(kind):
            array = self._maps(rows, kind)
        elif pa.types.is_list(kind):
            array = self._lists(rows, kind)
        else:
            array = self._leaf(rows, kind)
        return pa.ExtensionArray.from_storage(Boxed(array.type), array) if self._source.random() < 0.1 else array

    def _rows(self, rows: list[Any], kind: pa.StructType) -> pa.Array:
        held = [row is not None for row in rows]
        columns = [[None if row is None else row[part.name] for row in rows] for part in kind]
        parts = [self._laid_out(column, part, held) for column, part in zip(columns, kind, strict=True)]
        fields = [part.with_type(array.type) for part, array in zip(kind, parts, strict=True)]
        return pa.Array.from_buffers(pa.struct(fields), len(rows), [_bits(held)], children=parts)

    def _maps(self, rows: list[Any], kind: pa.MapType) -> pa.Array:
        starts, _, seen, elements = self._elements(rows, lambda: ("k", self._any(kind.item_field)))
        keys = self._made([key for key, _ in elements], kind.key_type)
        # Arrow ends the process where it does not know that there are none.
        assert not keys.null_count
        items = self._laid_out([item for _, item in elements], kind.item_field, seen)
        fields = [kind.key_field.with_type(keys.type), kind.item_field.with_type(items.type)]
        entries = pa.Array.from_buffers(pa.struct(fields), len(elements), [None], children=[keys, items])
        buffers = [_bits([row is not None for row in rows]), _numbers(starts, np.int32)]
        return pa.Array.from_buffers(pa.map_(*fields), len(rows), buffers, children=[entries])

    def _lists(self, rows: list[Any], kind: pa.ListType) -> pa.Array:
        starts, sizes, seen, elements = self._elements(rows, lambda: self._any(kind.value_field))
        values = self._laid_out(elements, kind.value_field, seen)
        field, held = kind.value_field.with_type(values.type), _bits([row is not None for row in rows])
        made, buffers = self._source.choice(
            [
                (pa.list_(field), [_numbers(starts, np.int32)]),
                (pa.large_list(field), [_numbers(starts, np.int64)]),
                (pa.list_view(field), [_numbers(starts[:-1], np.int32), _numbers(sizes, np.int32)]),
            ]
        )
        return pa.Array.from_buffers(made, len(rows), [held, *buffers], children=[values])

    def _elements(
        self, rows: list[Any], anything: Callable[[], Any]
    ) -> tuple[list[int], list[int], list[bool], list[Any]]:
        """Where the elements of each list begin, how many there are, which are seen, and all of them."""
        starts, seen, elements = [0], list[bool](), list[Any]()
        for row in rows:
            given = [anything() for _ in range(self._source.randint(0, 2))] if row is None else row
            elements += given
            seen += [row is not None] * len(given)
            starts.append(len(elements))
        return starts, np.diff(starts).tolist(), seen, elements

    def _leaf(self, rows: list[Any], kind: pa.DataType) -> pa.Array:
        array = pa.array(rows, kind)
        ways: list[Callable[[], pa.Array]] = [
            lambda: array,
            lambda: array,
            array.dictionary_encode,
            lambda: pc.run_end_encode(array),
        ]
        if pa.types.is_string(kind):
            ways += [lambda: array.cast(pa.large_string()), lambda: pa.array(rows, pa.string_view())]
        if pa.types.is_binary(kind):
            ways += [lambda: array.cast(pa.large_binary()), lambda: pa.array(rows, pa.binary_view())]
        if self._null_types and len(array) and array.null_count == len(array):
            ways += [lambda: pa.nulls(len(array))] * 4
        return self._source.choice(ways)()


def _bits(held: Sequence[bool]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.array(held, np.bool_), bitorder="little").tobytes())


def _numbers(numbers: Sequence[int], kind: Any) -> pa.Buffer:
    return pa.py_buffer(np.array(numbers, kind).tobytes())


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
    catalog.create_table(f"db.{name}", Schema(fields=fields(types), options=options), False)
    return catalog.get_table(f"db.{name}")
