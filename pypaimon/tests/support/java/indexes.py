"""File indexes that Java has written, each with the values it was written for (`live_java/FileIndexes.java`)."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
from pypaimon.schema.data_types import AtomicType, DataField

from pypaimon.streaming.model.arrow_types import arrow_type
from pypaimon.streaming.paimon.internals import TableSchema
from support.repository import TESTS

COLUMN = "cé"


@dataclass(frozen=True)
class JavaIndex:
    """An index of one column.

    Attributes:
        index: Type of the index, and its version if that is not the newest.
        given: The values as JSON; None: those that the generator has a rule for.
    """

    type: str
    index: str
    given: list[Any] | None = field(repr=False)
    data: bytes = field(repr=False)

    def __str__(self) -> str:
        return f"{self.index} of {len(self.values)} {self.type}"

    @property
    def schema(self) -> TableSchema:
        return schema_of(self.type)

    @cached_property
    def values(self) -> pa.Array:
        """The values, as a stream reads them."""
        kind = arrow_type(AtomicType(self.type))
        if self.given is None:
            return pa.array(_many(self.type), kind)
        if self.type.startswith("TIMESTAMP"):
            per_milli = {"s": 0.001, "ms": 1, "us": 1000, "ns": 10**6}[kind.unit]
            nanos = [None if each is None else each[0] * 10**6 + each[1] for each in self.given]
            ticks = [None if each is None else each * int(per_milli * 1000) // 10**9 for each in nanos]
            return pa.array(ticks, pa.int64()).cast(kind)
        if self.type.startswith(("DATE", "TIME")):
            return pa.array(self.given, pa.int32()).cast(kind)
        if self.type == "BYTES":
            return pa.array([None if each is None else base64.b64decode(each) for each in self.given], kind)
        if self.type in ("FLOAT", "DOUBLE"):
            return pa.array([None if each is None else float(each) for each in self.given], kind)
        return pa.array(self.given).cast(kind)


def schema_of(sql: str) -> TableSchema:
    return TableSchema(3, 0, [DataField(4, COLUMN, AtomicType(sql))], 99, [], [], {}, None)


def java_indexes() -> list[JavaIndex]:
    lines = (TESTS / "filtering" / "java_indexes.jsonl").read_text(encoding="utf-8").splitlines()
    return [_index(json.loads(line)) for line in lines]


def _index(raw: dict[str, Any]) -> JavaIndex:
    return JavaIndex(raw["type"], raw["index"], raw["values"], base64.b64decode(raw["bytes"]))


def _many(sql: str) -> list[Any]:
    if sql == "TINYINT":
        return [1 if row % 2 == 0 else None if row % 10_000 == 1 else 2 for row in range(140_000)]
    numbers = [
        1 if row < 2000 else None if row % 7 == 0 else 2 if row % 2 == 0 else 5 + row % 60 for row in range(6000)
    ]
    return [None if each is None else f"name {each}" for each in numbers] if sql == "STRING" else numbers
