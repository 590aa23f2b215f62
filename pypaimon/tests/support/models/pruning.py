"""Manifest entries of imagined files, with honest statistics of their rows, and filters at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st
from pypaimon.schema.data_types import AtomicType, DataField

from pypaimon.streaming.metadata.manifest_tables import ENTRY_SCHEMA
from pypaimon.streaming.paimon.filter_internals import Predicate
from pypaimon.streaming.paimon.internals import GenericRow, GenericRowSerializer, PyarrowFieldParser, TableSchema

Row = dict[str, Any]

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "k": st.integers(0, 9),
    "p": st.sampled_from(["a", "b", "a" * 20]),
    "i": st.none() | st.integers(-5, 5),
    "s": st.none() | st.sampled_from(["", "a", "ab", "abc", "b", "é", "x" * 20, "x" * 15 + "y" * 9, "\U0001f600" * 17]),
    "f": st.none() | st.sampled_from([float("nan"), float("inf"), -0.0, 0.0, 0.1, -1.5, 2.5, 3.4e38]),
    "g": st.none() | st.sampled_from([float("nan"), float("inf"), -0.0, 0.0, 0.1, -1.5, 2.5, 1.7e308]),
    "d": st.none() | st.decimals(Decimal("-9.99"), Decimal("9.99"), places=2),
    "t": st.none()
    | st.datetimes(datetime(1969, 12, 31), datetime(1970, 1, 2)).map(
        lambda each: each.replace(microsecond=each.microsecond // 1000 * 1000)
    ),
    "b": st.none() | st.booleans(),
}
TYPES = {
    "k": "INT NOT NULL",
    "p": "STRING NOT NULL",
    "i": "INT",
    "s": "STRING",
    "f": "FLOAT",
    "g": "DOUBLE",
    "d": "DECIMAL(6, 2)",
    "t": "TIMESTAMP(3)",
    "b": "BOOLEAN",
}


def schema(
    columns: dict[str, str],
    primary: Sequence[str] = (),
    partition: Sequence[str] = (),
    options: dict[str, str] | None = None,
    schema_id: int = 0,
    ids: dict[str, int] | None = None,
) -> TableSchema:
    """A schema of columns (name to SQL type); field ids are their indexes unless given."""
    fields = [
        DataField((ids or {}).get(name, index), name, AtomicType(sql.removesuffix(" NOT NULL"), "NOT NULL" not in sql))
        for index, (name, sql) in enumerate(columns.items())
    ]
    return TableSchema(3, schema_id, fields, 99, list(partition), list(primary), options or {}, None)


@dataclass(frozen=True, slots=True)
class File:
    """An imagined file.

    Attributes:
        kept_stats: Columns that have value statistics; None: all of them, without naming them.
        first_row_id: Of the first row, with row tracking.
        write_cols: Columns that it holds, with data evolution; None: all.
        truncate: Length to which bounds of texts are cut, as `metadata.stats-mode` `truncate(n)`; 0: not at all.
    """

    rows: list[Row]
    written: TableSchema
    bucket: int = 0
    total_buckets: int = 1
    level: int = 0
    kept_stats: list[str] | None = None
    truncate: int = 0
    first_row_id: int | None = None
    write_cols: list[str] | None = None
    name: str = field(default="f")


def encode(values: Sequence[Any], fields: Sequence[DataField]) -> bytes:
    """A serialised row, as manifests hold it."""
    encoded: bytes = GenericRowSerializer.to_bytes(GenericRow(list(values), list(fields)))
    return encoded


def entries_of(files: Sequence[File]) -> pa.Table:
    """ADD entries of files, `ENTRY_SCHEMA`."""
    rows = [_entry(each) for each in files]
    columns = [pa.array([row.get(name) for row in rows], ENTRY_SCHEMA.field(name).type) for name in ENTRY_SCHEMA.names]
    return pa.table(columns, schema=ENTRY_SCHEMA)


def _entry(file: File) -> dict[str, Any]:
    written = file.written
    by_name = {each.name: each for each in written.fields}
    keys = [by_name[name] for name in written.primary_keys if name not in written.partition_keys]
    names = list(by_name) if file.write_cols is None else file.write_cols
    kept = [by_name[name] for name in (names if file.kept_stats is None else file.kept_stats)]
    partition = [by_name[name] for name in written.partition_keys]
    entry: dict[str, Any] = {
        "kind": 0,
        "partition": encode([file.rows[0][each.name] for each in partition], partition),
        "bucket": file.bucket,
        "total_buckets": file.total_buckets,
        "file_name": file.name,
        "row_count": len(file.rows),
        "schema_id": written.id,
        "level": file.level,
        "value_stats_cols": file.kept_stats,
        "first_row_id": file.first_row_id,
        "write_cols": file.write_cols,
    }
    for kind, fields in (("key", keys), ("value", kept)):
        bounds = [_bounds(file.rows, each, file.truncate if kind == "value" else 0) for each in fields]
        entry[f"{kind}_min"] = encode([low for low, _, _ in bounds], fields)
        entry[f"{kind}_max"] = encode([high for _, high, _ in bounds], fields)
        entry[f"{kind}_nulls"] = [nulls for _, _, nulls in bounds]
    return entry


def _bounds(rows: list[Row], column: DataField, truncate: int) -> tuple[Any, Any, int]:
    """As Arrow computes them (NaN left out) and Java cuts them: upper bounds rounded up, or none."""
    values = pa.array([row[column.name] for row in rows], PyarrowFieldParser.from_paimon_type(column.type))
    low, high = pc.min(values).as_py(), pc.max(values).as_py()
    if isinstance(low, str) and truncate:
        low, high = low[:truncate], high if len(high) <= truncate else _above(high[:truncate])
    return low, high, values.null_count


def _above(text: str) -> str | None:
    return None if ord(text[-1]) >= 0x10FFFF else text[:-1] + chr(ord(text[-1]) + 1)


def batch(rows: Sequence[Row], read: TableSchema) -> pa.RecordBatch:
    """Rows in the schema that is read; columns they lack are null."""
    types = [PyarrowFieldParser.from_paimon_type(each.type) for each in read.fields]
    names = [each.name for each in read.fields]
    columns = [pa.array([row.get(name) for row in rows], kind) for name, kind in zip(names, types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=names)


def predicates(columns: Sequence[str]) -> st.SearchStrategy[Predicate]:
    return st.recursive(
        st.sampled_from(columns).flatmap(_leaf),
        lambda inner: st.builds(
            lambda method, parts: Predicate(method, None, None, parts),
            st.sampled_from(["and", "or"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
        max_leaves=5,
    )


_ORDERED = ["equal", "notEqual", "lessThan", "lessOrEqual", "greaterThan", "greaterOrEqual"]


def _leaf(column: str) -> st.SearchStrategy[Predicate]:
    value = VALUES[column]
    given = value.filter(lambda each: each is not None)
    choices = [
        st.builds(lambda m, v: Predicate(m, 0, column, [v]), st.sampled_from(_ORDERED), value),
        st.builds(
            lambda m, v: Predicate(m, 0, column, v), st.sampled_from(["in", "notIn"]), st.lists(value, max_size=3)
        ),
        st.builds(
            lambda m, v: Predicate(m, 0, column, v),
            st.sampled_from(["between", "notBetween"]),
            st.lists(given, min_size=2, max_size=2),
        ),
        st.builds(lambda m: Predicate(m, 0, column, None), st.sampled_from(["isNull", "isNotNull"])),
    ]
    if TYPES[column].startswith("STRING"):
        text = st.sampled_from(["", "a", "ab", "x" * 18, "é"])
        methods = st.sampled_from(["startsWith", "endsWith", "contains"])
        choices.append(st.builds(lambda m, v: Predicate(m, 0, column, [v]), methods, text))
        patterns = st.sampled_from(["a%", "%b", "a_c", "abc", r"a\%", "x%y"])
        choices.append(st.builds(lambda v: Predicate("like", 0, column, [v]), patterns))
    return st.one_of(choices)


def rows(columns: Sequence[str], **fixed: Any) -> st.SearchStrategy[list[Row]]:
    """A few rows of these columns; `fixed` ones are the same in all of them."""
    one = st.fixed_dictionaries({name: VALUES[name] for name in columns if name not in fixed})
    return st.lists(one.map(lambda row: {**row, **fixed}), min_size=1, max_size=4)
