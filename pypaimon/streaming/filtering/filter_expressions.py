"""Filters as expressions of pyarrow: `(pc.field("v") > 3) & pc.field("name").isin(["a", "b"])`.

An expression cannot be inspected in Python, and its text leaves out long lists and the types of its values. It is read
in the form in which it is pickled: a file of Arrow IPC, whose metadata are the nodes of the expression in order, and
whose columns are its values.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.filtering.field_paths import find
from pypaimon.streaming.filtering.filter_text import is_text, leaf_of, parse_filter
from pypaimon.streaming.filtering.filters import check
from pypaimon.streaming.model.arrow_types import arrow_schema
from pypaimon.streaming.model.data_types import root
from pypaimon.streaming.paimon.filter_internals import Predicate
from pypaimon.streaming.paimon.internals import AtomicType, DataField, DataType


def filter_of(given: Predicate | pc.Expression | str, fields: Sequence[DataField]) -> Predicate:
    """The filter that a caller gave in any form. Raises as `parse_filter` and `parse_expression`."""
    if isinstance(given, str):
        return parse_filter(given, fields)
    return parse_expression(given, fields) if isinstance(given, pc.Expression) else given


def parse_expression(expression: pc.Expression, fields: Sequence[DataField]) -> Predicate:
    """Translate an expression into a filter of the rows for which it is true.

    Operators mean what they mean in pyarrow, for nulls too: `~isin([1])` keeps nulls. Values are compared as in every
    filter, see `filters`.

    Raises:
        StreamConfigError: A column does not exist, a value does not fit its column, or there is no filter of the same
            meaning.
    """
    found = _Translator(expression, fields)
    predicate = found.condition(_parsed(expression), holds=True)
    schema = arrow_schema([each for each in fields if each.name in found.columns])
    try:
        # pyarrow finds out what cannot be compared, such as times with and without a time zone.
        schema.empty_table().filter(expression)
    except pa.ArrowException as error:
        raise StreamConfigError(f"filter {expression}: {error}") from error
    check(predicate, schema)
    return predicate


# ---- the nodes of an expression ----


@dataclass(frozen=True, slots=True)
class _Column:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Value:
    value: Any


@dataclass(frozen=True, slots=True)
class _Call:
    function: str
    arguments: list[_Node] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)


_Node = _Column | _Value | _Call


def _parsed(expression: pc.Expression) -> _Node:
    try:
        _, (data,) = expression.__reduce__()
    except pa.ArrowException as error:
        raise StreamConfigError(
            f"filter {expression}: {error}. Name the columns, pc.field('name'), and compare them with single values."
        ) from error
    with pa.ipc.open_file(data) as file:
        values = file.get_batch(0)
        nodes = iter(_metadata(file.schema))
    # Not recursive: a chain of many `|` is as deep as it is long.
    outermost = _Call("")
    open_calls = [outermost]
    for kind, text in nodes:
        call = open_calls[-1]
        if kind == "field_ref":
            call.arguments.append(_Column((text,)))
        elif kind == "nested_field_ref":
            call.arguments.append(_Column(tuple(next(nodes)[1] for _ in range(int(text)))))
        elif kind == "literal":
            call.arguments.append(_Value(values.column(int(text))[0].as_py()))
        elif kind == "call":
            open_calls.append(_Call(text))
            call.arguments.append(open_calls[-1])
        elif kind == "options":
            call.options.update(values.column(int(text))[0].as_py())
        elif kind == "end":
            open_calls.pop()
        else:
            raise StreamConfigError(
                f"filter {expression}: pyarrow {pa.__version__} describes it with {kind!r}, which this release does "
                "not know; write the filter as text"
            )
    return outermost.arguments[0]


class _ArrowSchema(ctypes.Structure):
    """The beginning of `ArrowSchema` of Arrow's C data interface."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _metadata(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """The metadata in order, by way of the C data interface: `schema.metadata`, a dict, loses repeated keys."""
    capsule = schema.__arrow_c_schema__()
    at = _ArrowSchema.from_address(_pointer_of(capsule, b"arrow_schema")).metadata
    for _ in range(ctypes.c_int32.from_address(at).value):
        pair = []
        for _ in range(2):
            at += _LENGTH
            size = ctypes.c_int32.from_address(at).value
            pair.append(ctypes.string_at(at + _LENGTH, size).decode())
            at += size
        yield pair[0], pair[1]


_LENGTH = 4
"""Bytes of a number in the metadata."""


# ---- what they mean ----

_COMPARISONS = {
    "equal": "equal",
    "not_equal": "notEqual",
    "less": "lessThan",
    "less_equal": "lessOrEqual",
    "greater": "greaterThan",
    "greater_equal": "greaterOrEqual",
}
_SWAPPED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
_OPPOSITES = {"equal": "notEqual", "lessThan": "greaterOrEqual", "lessOrEqual": "greaterThan"}
_OPPOSITES.update([(other, one) for one, other in _OPPOSITES.items()])
_PATTERNS = {
    "starts_with": ("startsWith", "", "%"),
    "ends_with": ("endsWith", "%", ""),
    "match_substring": ("contains", "%", "%"),
}
_MATCH, _SKIP = 0, 1
"""Arrow's `SetLookupOptions::NullMatchingBehavior`, as far as Python offers it."""
_FLOATS = ("FLOAT", "DOUBLE")

_INSTEAD: Mapping[str, str] = {
    "and": "write &",
    "or": "write |",
    "and_not": "write & and ~",
    "and_not_kleene": "write & and ~",
    "cast": "compare the column without cast()",
    "match_substring_regex": "use pc.match_like, pc.starts_with, pc.ends_with or pc.match_substring",
}
_KNOWN = (
    "==, !=, <, <=, >, >= with a value, isin, is_null, is_valid, is_nan, pc.starts_with, pc.ends_with, "
    "pc.match_substring and pc.match_like, joined by &, | and ~"
)


class _Translator:
    def __init__(self, expression: pc.Expression, fields: Sequence[DataField]) -> None:
        self._expression = expression
        self._fields = fields
        self.columns: set[str] = set()

    def condition(self, node: _Node, *, holds: bool) -> Predicate:
        """The filter of the rows for which a node is true; with `holds=False`, of those for which it is false."""
        while isinstance(node, _Call) and node.function == "invert":
            (node,), holds = node.arguments, not holds
        if isinstance(node, _Value):
            raise self._wrong(f"{node.value!r} is not a condition on a column; leave it out")
        if isinstance(node, _Column):
            # A column of truth values; pyarrow refuses others.
            return self._leaf("equal", self._column(node)[0], [holds])
        if node.function in ("and_kleene", "or_kleene"):
            method = "and" if (node.function == "and_kleene") == holds else "or"
            return Predicate(method, None, None, [self.condition(part, holds=holds) for part in _chain(node)])
        return self._test(node, holds)

    def _test(self, call: _Call, holds: bool) -> Predicate:
        function, arguments, options = call.function, call.arguments, call.options
        if function in _COMPARISONS:
            return self._comparison(function, arguments, holds)
        if function not in ("is_in", "is_null", "is_valid", "is_nan", "match_like", *_PATTERNS):
            instead = _INSTEAD.get(function.rstrip("_"), f"a filter has {_KNOWN}")
            raise self._wrong(f"{function} cannot be used; {instead}")
        name, kind = self._column(arguments[0])
        if function == "is_in":
            return self._membership(name, options, holds)
        if function == "is_nan":
            return self._leaf("equal" if holds else "notEqual", name, [float("nan")])
        if function in ("is_null", "is_valid"):
            is_null = (function == "is_null") == holds
            found = self._leaf("isNull" if is_null else "isNotNull", name, None)
            if not options.get("nan_is_null") or not isinstance(kind, AtomicType) or root(kind) not in _FLOATS:
                return found
            nan = self._leaf("equal" if is_null else "notEqual", name, [float("nan")])
            return Predicate("or" if is_null else "and", None, None, [found, nan])
        return self._match(function, name, kind, options, holds)

    def _comparison(self, function: str, arguments: Sequence[_Node], holds: bool) -> Predicate:
        column, value = arguments
        if isinstance(column, _Value):
            function, column, value = _SWAPPED.get(function, function), value, column
        if not isinstance(value, _Value):
            raise self._wrong("a column can be compared with a value only")
        if value.value is None:
            raise self._wrong("nothing equals null; write is_null() or is_valid()")
        method = _COMPARISONS[function]
        return self._leaf(method if holds else _OPPOSITES[method], self._column(column)[0], [value.value])

    def _membership(self, name: str, options: Mapping[str, Any], holds: bool) -> Predicate:
        of_nulls = options.get("null_matching_behavior")
        if of_nulls not in (_MATCH, _SKIP):
            raise self._wrong(f"is_in with options {options!r} cannot be used; write isin([...])")
        values = [value for value in options["value_set"] if value is not None]
        among = self._leaf("in" if holds else "notIn", name, values)
        matches_null = of_nulls == _MATCH and len(values) < len(options["value_set"])
        if matches_null != holds:
            return among
        return Predicate("or", None, None, [among, self._leaf("isNull", name, None)])

    def _match(self, function: str, name: str, kind: DataType, options: Mapping[str, Any], holds: bool) -> Predicate:
        if not is_text(kind):
            raise self._wrong(f"{function} is for text, and {name} is {kind}")
        if options["ignore_case"]:
            raise self._wrong("ignore_case cannot be used; leave it out, or test the batches")
        pattern = options["pattern"]
        pattern = pattern.decode() if isinstance(pattern, bytes) else pattern
        if function == "match_like":
            return self._leaf("like" if holds else "notLike", name, [pattern])
        method, before, after = _PATTERNS[function]
        if holds:
            return self._leaf(method, name, [pattern])
        return self._leaf("notLike", name, [before + re.sub(r"([%_\\])", r"\\\1", pattern) + after])

    def _column(self, node: _Node) -> tuple[str, DataType]:
        if not isinstance(node, _Column):
            what = "a value" if isinstance(node, _Value) else node.function
            raise self._wrong(f"{what} cannot be compared; {_INSTEAD.get(what, 'compare a column, pc.field(name)')}")
        name = ".".join(node.names)
        path = find(name, self._fields)
        if path is None or tuple(each.name for each in path) != node.names:
            known = ", ".join(each.name for each in self._fields)
            raise self._wrong(
                f"there is no column {name!r}; columns: {known}. A field of a row is pc.field('row', 'f')"
            )
        self.columns.add(node.names[0])
        return name, path[-1].type

    def _leaf(self, method: str, name: str, literals: list[Any] | None) -> Predicate:
        return leaf_of(method, name, literals, self._fields)

    def _wrong(self, what: str) -> StreamConfigError:
        return StreamConfigError(f"filter {self._expression}: {what}")


def _chain(call: _Call) -> Iterator[_Node]:
    """The parts that calls of one function join."""
    waiting: list[_Node] = [call]
    while waiting:
        node = waiting.pop()
        if isinstance(node, _Call) and node.function == call.function:
            waiting += reversed(node.arguments)
        else:
            yield node
