"""`check_format`: which types a file format cannot hold as Java needs them; refused before the first row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.model.arrow_types import arrow_type

_AT_HOME = {"VARIANT": ("parquet",), "VECTOR": ("parquet", "avro")}


def check_format(format_: str, fields: Sequence[Any]) -> None:
    """Refuse a table whose columns cannot be written in a format.

    Args:
        format_: `parquet`, `orc` or `avro`.
        fields: pypaimon's fields of the table.

    Raises:
        UnsupportedTableError: One of them cannot; the message names it.
    """
    types = [(field, list(leaves(arrow_type(field.type)))) for field in fields]
    times = [(field, kind.unit) for field, kinds in types for kind in kinds if pa.types.is_timestamp(kind)]
    fine = [field for field, unit in times if unit == "ns"]
    coarse = [field for field, unit in times if unit != "ns"]
    if format_ == "parquet" and fine and coarse:
        raise _refused(
            fine[0], "parquet", f"beside a timestamp of another precision ('{coarse[0].name}'): pyarrow writes all "
            "timestamps of a file as Java has those of precision 7 to 9, or none", "orc",
        )  # fmt: skip
    if format_ == "avro" and fine:
        raise _refused(fine[0], "avro", "and Avro holds no nanoseconds", "parquet or orc")
    for name, homes in _AT_HOME.items():
        for field in fields:
            if name in str(field.type).upper() and format_ not in homes:
                home = " or ".join(homes)
                raise _refused(field, format_, f"and Java has {name} in {home} files only", home)


def leaves(kind: pa.DataType) -> Iterator[pa.DataType]:
    """The types of which a type is made, down to those that are not nested."""
    if pa.types.is_nested(kind):
        for number in range(kind.num_fields):
            yield from leaves(kind.field(number).type)
    else:
        yield kind


def holds_moments(kind: pa.DataType) -> bool:
    """Whether a type is, or holds, a TIMESTAMP WITH LOCAL TIME ZONE."""
    return any(pa.types.is_timestamp(leaf) and leaf.tz for leaf in leaves(kind))


def _refused(field: Any, format_: str, why: str, instead: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"Column '{field.name}' is {field.type}, {why}; 'file.format' = '{format_}' cannot be written right here. "
        f"Set it to {instead}."
    )
