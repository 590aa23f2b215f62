"""Which buckets can hold rows that match a predicate, by its equalities on the bucket keys."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from pypaimon.streaming.model.data_types import INTEGER_BITS, root
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.table_kinds import BucketFunctionType
from pypaimon.streaming.paimon.internals import AtomicType, DataField, GenericRow, GenericRowSerializer, TableSchema

if TYPE_CHECKING:
    from pypaimon.streaming.paimon.filter_internals import Predicate

MAX_KEYS = 1000

BucketFunction = Callable[[tuple[Any, ...], int], int]
"""Returns the bucket for values of the bucket keys and a number of buckets."""


def bucket_function(schema: TableSchema) -> BucketFunction | None:
    """The bucket function of a table with fixed or postponed buckets; None: it is not known for certain.

    Follows Java's `DefaultBucketFunction` and `ModBucketFunction`. Not supported are `hive`, and key types with more
    than one encoding of equal values (floats, decimals, CHAR, timestamps, bytes).
    """
    keys = schema.logical_bucket_key_fields
    kind = option_keys.BUCKET_FUNCTION_TYPE.of(schema.options)
    if not keys or not all(_hashable(field) for field in keys):
        return None
    if kind is BucketFunctionType.DEFAULT:
        return lambda values, buckets: _hashed(keys, values, buckets)
    if kind is BucketFunctionType.MOD and len(keys) == 1 and root(keys[0].type) in ("INT", "BIGINT"):
        return lambda values, buckets: int(values[0]) % buckets
    return None


def candidate_keys(predicate: Predicate, keys: Sequence[DataField]) -> frozenset[tuple[Any, ...]] | None:
    """The bucket keys that matching rows can have; None: any, or more than `MAX_KEYS`."""
    # Two supersets of the matching keys are intersected: the product of the values of each column, and the keys of the
    # parts. For `a = 1 AND b = 2 OR a = 3 AND b = 4` the parts have two keys, the product has four.
    columns = [_values(predicate, field) for field in keys]
    known = [values for values in columns if values is not None]
    found = [_bounded(itertools.product(*known))] if len(known) == len(keys) else []
    if predicate.method in ("and", "or"):
        children = [candidate_keys(child, keys) for child in predicate.literals or ()]
        found.append(_combine(predicate.method, children))
    return _combine("and", found)


def _values(predicate: Predicate, field: DataField) -> frozenset[Any] | None:
    """The values of `field` in matching rows; None: any."""
    if predicate.method in ("and", "or"):
        return _combine(predicate.method, [_values(child, field) for child in predicate.literals or ()])
    if predicate.field != field.name or predicate.method not in ("equal", "in"):
        return None
    literals = [value for value in predicate.literals or () if value is not None]
    if not all(_is_of(value, field) for value in literals):
        return None
    # No row has a value beyond the range of its type.
    return frozenset(value for value in literals if _fits(value, field))


def _combine(method: str, parts: Sequence[frozenset[Any] | None]) -> frozenset[Any] | None:
    # None means any key: AND is bounded by the other parts, OR is not bounded.
    known = [part for part in parts if part is not None]
    if method == "or":
        return frozenset().union(*known) if len(known) == len(parts) else None
    return frozenset.intersection(*known) if known else None


def _bounded(keys: Iterable[tuple[Any, ...]]) -> frozenset[tuple[Any, ...]] | None:
    found = frozenset(itertools.islice(keys, MAX_KEYS + 1))
    return found if len(found) <= MAX_KEYS else None


def _hashable(field: DataField) -> bool:
    return isinstance(field.type, AtomicType) and root(field.type) in (*INTEGER_BITS, "BOOLEAN", "VARCHAR", "DATE")


def _is_of(value: Any, field: DataField) -> bool:
    kind = root(field.type)
    if kind in INTEGER_BITS:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "DATE":
        return isinstance(value, date) and not isinstance(value, datetime)
    return isinstance(value, bool if kind == "BOOLEAN" else str)


def _fits(value: Any, field: DataField) -> bool:
    bits = INTEGER_BITS.get(root(field.type))
    return bits is None or -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)


def _hashed(keys: Sequence[DataField], values: tuple[Any, ...], buckets: int) -> int:
    from pypaimon.streaming.paimon.filter_internals import bucket_of_hash, hash_words

    # The arity before a serialised row is not hashed.
    row = GenericRowSerializer.to_bytes(GenericRow(list(values), list(keys)))
    arity_prefix = 4
    bucket: int = bucket_of_hash(hash_words(row[arity_prefix:]), buckets)
    return bucket
