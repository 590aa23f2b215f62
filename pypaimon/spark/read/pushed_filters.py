"""Spark's filters as predicates of Paimon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pypaimon.spark.read.metadata_columns import METADATA
from pypaimon.streaming.filter_internals import Predicate

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

_COMPARISONS = {
    "EqualTo": "equal",
    "GreaterThan": "greaterThan",
    "GreaterThanOrEqual": "greaterOrEqual",
    "LessThan": "lessThan",
    "LessThanOrEqual": "lessOrEqual",
    "StringStartsWith": "startsWith",
    "StringEndsWith": "endsWith",
    "StringContains": "contains",
}
_NULLS = {"IsNull": "isNull", "IsNotNull": "isNotNull"}


def to_predicate(pushed: Filter, schema: StructType) -> Predicate | None:
    """A predicate that holds wherever the filter does; None if there is none.

    Args:
        pushed: Spark's filter.
        schema: The columns that it may name.
    """
    kind = type(pushed).__name__
    path: tuple[str, ...] = getattr(pushed, "attribute", ())
    if len(path) != 1 or path[0] in METADATA or path[0] not in schema.fieldNames():
        return None
    value: Any = getattr(pushed, "value", None)
    index = schema.fieldNames().index(path[0])
    if kind in _NULLS:
        return Predicate(_NULLS[kind], index, path[0], None)
    if kind == "In":
        return Predicate("in", index, path[0], list(value))
    if kind in _COMPARISONS and value is not None:
        return Predicate(_COMPARISONS[kind], index, path[0], [value])
    return None
