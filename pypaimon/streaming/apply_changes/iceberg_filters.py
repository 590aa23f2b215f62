"""Keys as what pyiceberg looks rows up by."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression


def key_filter(keys: pa.Table) -> BooleanExpression:
    """The rows that have one of these keys; there is at least one, each once. Nulls are equal, and so are NaNs."""
    from pyiceberg.expressions import And

    names = sorted(keys.column_names, key=lambda name: len(keys[name].unique()))
    *others, last = names
    if not others:
        return _is_one_of(last, keys[last])
    # Pyiceberg takes long for many terms, and not for many values of one.
    groups = keys.group_by(others).aggregate([(last, "list")])
    terms = [
        reduce(
            And,
            [_is_one_of(name, groups[name].slice(row, 1)) for name in others],
            _is_one_of(last, groups[f"{last}_list"][row].values),
        )
        for row in range(groups.num_rows)
    ]
    return _any_of(terms)


def _is_one_of(name: str, values: pa.Array | pa.ChunkedArray) -> BooleanExpression:
    from pyiceberg import expressions

    of: Any = expressions  # type checkers see pydantic's arguments, not those of its constructors
    terms = [of.IsNull(name)] if values.null_count else []
    kept = values.drop_null()
    if types.is_floating(values.type):
        is_nan = pc.is_nan(kept)
        terms += [of.IsNaN(name)] if pc.any(is_nan).as_py() else []
        kept = kept.filter(pc.invert(is_nan))
    return _any_of([of.In(name, kept.to_pylist()), *terms] if len(kept) else terms)


def _any_of(terms: list[BooleanExpression]) -> BooleanExpression:
    from pyiceberg.expressions import Or

    return terms[0] if len(terms) == 1 else Or(*terms)
