"""The aggregate functions `sum` and `product`, with Java's overflow, rounding and order of additions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.merge.functions.base import ADD, ADD_BEFORE, RETRACT, SKIP, Actions, FoldingAggregator, Values
from pypaimon.streaming.merge.groups import Groups, Mask
from pypaimon.streaming.merge.ordering import decimal_words, numeric_codes

_LONG_DIGITS = 18
# A group whose numbers may overflow on the way is folded, which is exact.
_NEARLY = 1 - 1e-9


class Number(FoldingAggregator):
    """The common part of `sum` and `product`.

    An integer overflow is an error, as in Java. A decimal of up to 18 digits may exceed its precision as long as a long
    holds it; any other decimal becomes null then. Floats are added one after the other in their own width.
    """

    retractable = True
    resets_on_set = True
    vectorized_actions = frozenset({SKIP, ADD, ADD_BEFORE, RETRACT})

    def __init__(self, field: str, kind: pa.DataType) -> None:
        self._field = field
        self._kind = kind
        self._float = np.dtype(f"f{kind.bit_width // 8}").type if pa.types.is_floating(kind) else None
        if pa.types.is_decimal(kind):
            self._limit = 1 << 63 if kind.precision <= _LONG_DIGITS else 10**kind.precision
        elif self._float is None:
            self._limit = 1 << (kind.bit_width - 1)

    def load(self, values: pa.Array) -> list[Any]:
        if pa.types.is_decimal(self._kind):
            words = decimal_words(values).tolist()
            valid = values.is_valid().to_pylist()
            mask = (1 << 64) - 1
            # The unscaled value: the upper word is signed, the lower one unsigned.
            return [high << 64 | low & mask if there else None for (low, high), there in zip(words, valid, strict=True)]
        numbers = values.to_pylist()
        return numbers if self._float is None else [None if n is None else self._float(n) for n in numbers]

    def store(self, values: list[Any], kind: pa.DataType) -> pa.Array:
        if not pa.types.is_decimal(kind):
            return pa.array(values, kind)
        data = b"".join((value or 0).to_bytes(16, "little", signed=True) for value in values)
        validity = pa.array([value is not None for value in values]).buffers()[1]
        return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(data)])

    def checked(self, result: Any) -> Any:
        """The result if the field's type can hold it."""
        if self._float is not None:
            return result
        if -self._limit <= result < self._limit if self._fixed else abs(result) < self._limit:
            return result
        if pa.types.is_decimal(self._kind):
            return None
        raise UnsupportedTableError(
            f"The {self.name} of field '{self._field}' overflows its type {self._kind}: {result}. Widen the type."
        )

    @property
    def _fixed(self) -> bool:
        return not pa.types.is_decimal(self._kind) or self._kind.precision <= _LONG_DIGITS

    def magnitudes(self, groups: Groups, column: str, used: Mask, otherwise: float) -> Any:
        """Absolute values as doubles (for decimals unscaled), and `otherwise` for unused ones."""
        values = groups.values(column).cast(pa.float64(), safe=False)
        numbers = np.abs(pc.fill_null(values, 0.0).to_numpy())
        if pa.types.is_decimal(self._kind):
            numbers = numbers * 10.0**self._kind.scale
        return np.where(used, numbers, otherwise)

    def in_order(self, groups: Groups, column: str, operation: Any, identity: float, signs: Any) -> Any:
        """Combine floats strictly in order, as Java does. numpy's reductions would combine them in pairs."""
        numbers = pc.fill_null(groups.values(column), 0.0).to_numpy()
        results = np.full(len(groups), identity, dtype=self._float)
        used = signs != 0
        with np.errstate(all="ignore"):
            operation.at(results, groups.ids[used], (numbers * signs.astype(self._float))[used])
        return results


class Sum(Number):
    """`sum`: nulls do not count; a retraction subtracts."""

    name = "sum"

    def needs_fold(self, groups: Groups, column: str, actions: Actions) -> Mask:
        if self._float is not None:
            return np.zeros(len(groups), dtype=np.bool_)
        used = (actions != SKIP) & groups.valid(column)
        # No partial sum exceeds the sum of the absolute values, so below the limit there is no overflow on the way.
        totals = np.add.reduceat(self.magnitudes(groups, column, used, 0.0), groups.starts)
        mask: Mask = totals >= self._limit * _NEARLY
        return mask

    def merge(self, groups: Groups, column: str, actions: Actions) -> Values:
        used = (actions != SKIP) & groups.valid(column)
        signs = np.where(used, np.where(actions == RETRACT, -1, 1), 0)
        absent = ~groups.any(used)
        if self._float is not None:
            # Start from -0.0, because 0.0 would make a sum of negative zeros positive.
            return pa.array(self.in_order(groups, column, np.add, -0.0, signs), mask=absent)
        if pa.types.is_decimal(self._kind):
            return self._decimals(groups, column, signs)
        numbers = numeric_codes(groups.values(column))
        assert numbers is not None
        totals = np.add.reduceat(numbers.astype(np.int64) * signs, groups.starts)
        return pa.array(totals.astype(numbers.dtype), mask=absent)

    def _decimals(self, groups: Groups, column: str, signs: Any) -> pa.Array:
        values = groups.values(column)
        wide = values.cast(pa.decimal128(38, self._kind.scale))
        signed = pc.if_else(pa.array(signs < 0), pc.negate(wide), wide)
        counted = pc.if_else(pa.array(signs != 0), signed, pa.scalar(None, wide.type))
        table = pa.table({"group": groups.ids, "value": counted})
        # Without threads groups come out in the order of their first record. The totals are reinterpreted as the
        # field's type without a check of its precision, because up to 18 digits they may exceed it.
        sums = table.group_by("group", use_threads=False).aggregate([("value", "sum")]).column("value_sum")
        totals = sums.combine_chunks()
        return pa.Array.from_buffers(self._kind, len(totals), totals.buffers(), offset=totals.offset)

    def add(self, accumulated: Any, value: Any) -> Any:
        if accumulated is None or value is None:
            return value if accumulated is None else accumulated
        return self.checked(accumulated + value)

    def retract(self, accumulated: Any, value: Any) -> Any:
        if accumulated is None or value is None:
            return accumulated if value is None else self.checked(-value)
        return self.checked(accumulated - value)


class Product(Number):
    """`product`: nulls do not count; a retraction divides (integers: towards zero)."""

    name = "product"
    vectorized_actions = frozenset({SKIP, ADD, ADD_BEFORE})

    def needs_fold(self, groups: Groups, column: str, actions: Actions) -> Mask:
        folded = super().needs_fold(groups, column, actions)
        if self._float is not None:
            return folded
        if pa.types.is_decimal(self._kind):
            return np.ones(len(groups), dtype=np.bool_)
        used = (actions != SKIP) & groups.valid(column)
        # Count each factor as at least 1, because a zero would hide an overflow before it.
        sizes = np.maximum(self.magnitudes(groups, column, used, 1.0), 1.0)
        with np.errstate(over="ignore"):
            mask: Mask = folded | (np.multiply.reduceat(sizes, groups.starts) >= self._limit * _NEARLY)
        return mask

    def merge(self, groups: Groups, column: str, actions: Actions) -> Values:
        used = (actions != SKIP) & groups.valid(column)
        absent = ~groups.any(used)
        if self._float is not None:
            return pa.array(self.in_order(groups, column, np.multiply, 1.0, used.astype(np.int64)), mask=absent)
        numbers = numeric_codes(groups.values(column))
        assert numbers is not None
        products = np.multiply.reduceat(np.where(used, numbers.astype(np.int64), 1), groups.starts)
        return pa.array(products.astype(numbers.dtype), mask=absent)

    def add(self, accumulated: Any, value: Any) -> Any:
        if accumulated is None or value is None:
            return value if accumulated is None else accumulated
        if pa.types.is_decimal(self._kind):
            return self._rounded(Fraction(accumulated * value, 10**self._kind.scale))
        with np.errstate(all="ignore"):
            return self.checked(accumulated * value)

    def retract(self, accumulated: Any, value: Any) -> Any:
        if accumulated is None or value is None:
            return accumulated
        if self._float is not None:
            with np.errstate(all="ignore"):
                return accumulated / value
        if value == 0:
            raise UnsupportedTableError(f"A zero cannot be retracted from the product of field '{self._field}'.")
        if pa.types.is_decimal(self._kind):
            return self._quotient(accumulated, value)
        quotient = abs(accumulated) // abs(value)
        return self.checked(quotient if (accumulated < 0) == (value < 0) else -quotient)

    def _quotient(self, accumulated: int, value: int) -> int | None:
        exact = Fraction(accumulated * 10**self._kind.scale, value)
        # A quotient has a finite decimal form if 2 and 5 are the only prime factors of its denominator.
        rest = Fraction(accumulated, value).denominator
        for factor in (2, 5):
            while rest % factor == 0:
                rest //= factor
        if rest != 1:
            raise UnsupportedTableError(
                f"A value retracted from the product of field '{self._field}' leaves a quotient without an exact "
                "decimal form, which Java refuses too."
            )
        return self._rounded(exact)

    def _rounded(self, exact: Fraction) -> int | None:
        """Round half up to the field's scale; None if the result exceeds the field's precision."""
        doubled = abs(exact) + Fraction(1, 2)
        unscaled = doubled.numerator // doubled.denominator
        if unscaled >= 10**self._kind.precision:
            return None
        return unscaled if exact >= 0 else -unscaled
