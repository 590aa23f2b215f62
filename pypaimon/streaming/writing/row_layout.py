"""`RowLayout`: how given columns become those of a table. Rows that do not fit are refused before any is written."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import BadRowError, SchemaMismatchError, UnsupportedTableError
from pypaimon.streaming.files.casts import CastError, cast
from pypaimon.streaming.merge.engines.factory import merge_engine
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.arrow_types import arrow_type
from pypaimon.streaming.model.column_names import GivenNames, quoted
from pypaimon.streaming.model.normal_form import UnfitValueError, normal_array, normal_type
from pypaimon.streaming.model.system_columns import ROW_KIND, VALUE_KIND
from pypaimon.streaming.model.time_zone import TimeZone
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.paimon.internals import AtomicType, MultisetType
from pypaimon.streaming.writing.blob_forms import BlobForm, blob_forms, blob_problem

_KINDS = pa.array(["+I", "-U", "+U", "-D"])
_WHAT_ELSE = {
    "partial-update": ", 'partial-update.remove-record-on-delete' = 'true' lets a -D remove the row, sequence groups "
    "let records take back their fields",
    "aggregation": ", 'aggregation.remove-record-on-delete' = 'true' lets a -D remove the row, and 'fields.<f>.ignore-"
    "retract' = 'true' leaves a field whose function cannot take values back as it is",
}
_INTEGERS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_EXACT_FLOATS = {pa.float32(): (pa.int8(), pa.int16()), pa.float64(): (pa.int8(), pa.int16(), pa.int32(), pa.float32())}
_DAYS = (-719_162, 2_932_896)
_SECONDS = (-62_135_596_800, 253_402_300_799)
_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000}


@dataclasses.dataclass(frozen=True, slots=True)
class _Column:
    """One column of the table."""

    name: str
    source: int | None  # Its position in the given batches; None: it is not given
    type: pa.DataType
    nullable: bool
    shown: str
    max_length: int | None
    default: pa.Array | None = None
    blobs: BlobForm | None = None
    bounds: tuple[int, int] | None = (
        None  # Of a DATE or TIMESTAMP that decides the partition or bucket; None: it does not
    )


@dataclasses.dataclass(frozen=True, slots=True)
class KindRules:
    """How a table treats row kinds."""

    keyed: bool
    retractions: frozenset[int]
    engine: str
    ignore_deletes: bool
    ignore_before: bool

    @staticmethod
    def of(table: PaimonTable) -> KindRules:
        keyed = table.is_primary_key_table
        return KindRules(
            keyed=keyed,
            retractions=merge_engine(table.schema).retractions if keyed else frozenset(),
            engine=table.traits.merge_engine.value,
            ignore_deletes=option_keys.IGNORE_DELETE.of(table.options),
            ignore_before=option_keys.IGNORE_UPDATE_BEFORE.of(table.options),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class TargetTable:
    """The table that rows are to be written to."""

    name: str
    fields: Sequence[Any]
    rules: KindRules
    zone: TimeZone
    blobs: Mapping[str, BlobForm] = dataclasses.field(default_factory=dict)
    dated: Sequence[str] = ()  # Its columns of times that decide the partition or bucket of a row

    @staticmethod
    def of(table: PaimonTable) -> TargetTable:
        forms, dated = blob_forms(table.schema), _dated_keys(table)
        return TargetTable(table.name, table.fields, KindRules.of(table), table.zone, forms, dated)


@dataclasses.dataclass(frozen=True, slots=True)
class RowLayout:
    """How record batches become rows of a table. Pickled into the tasks."""

    table: str
    columns: tuple[_Column, ...]
    kind: int | None  # Position of the row-kind column in a batch, or None
    rules: KindRules

    def align(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The table's columns, followed by the row kind in a primary-key table."""
        arrays = [self._column(column, batch) for column in self.columns]
        fields = [pa.field(column.name, column.type, column.nullable) for column in self.columns]
        if not self.rules.keyed:
            return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
        kinds = self._kinds(batch)
        aligned = pa.RecordBatch.from_arrays(
            [*arrays, kinds], schema=pa.schema([*fields, pa.field(VALUE_KIND, pa.int8(), nullable=False)])
        )
        keep = self._kept(kinds)
        return aligned if keep is None else aligned.filter(keep)

    def _column(self, column: _Column, batch: pa.RecordBatch) -> pa.Array:
        if column.source is None:
            missing = pa.nulls(batch.num_rows, column.type)
            return missing if column.default is None else pc.coalesce(missing, column.default[0])
        field = pa.field(column.name, column.type, column.nullable)
        values = self._normal(batch.column(column.source), field, column.shown)
        if column.max_length is not None:
            _check_length(values, column, self.table)
        if column.bounds is not None:
            _check_date_range(values, column, self.table)
        if column.blobs is not None and (problem := blob_problem(values, column.blobs)) is not None:
            raise BadRowError(f"Column '{column.name}' of {self.table} is {column.shown}, and a row holds {problem}.")
        return values if column.default is None else pc.coalesce(values, column.default[0])

    def _normal(self, values: pa.Array, field: pa.Field, shown: str) -> pa.Array:
        try:
            return normal_array(values, field)
        except UnfitValueError as error:
            text = f"Column '{field.name}' of {self.table} is {shown}, and {error.problem}."
            raise BadRowError(text) from error

    def _kinds(self, batch: pa.RecordBatch) -> pa.Array:
        if self.kind is None:
            return pa.repeat(pa.scalar(0, pa.int8()), batch.num_rows)
        field = pa.field(batch.schema.names[self.kind], pa.string())
        text = self._normal(batch.column(self.kind), field, "the row kind")
        kinds = pc.index_in(text, _KINDS)
        if kinds.null_count:
            bad = text.filter(kinds.is_null())[0].as_py()
            raise BadRowError(f"Column '{field.name}': expected +I, -U, +U or -D, got {bad!r}.")
        return kinds.cast(pa.int8())

    def _kept(self, kinds: pa.Array) -> pa.Array | None:
        """Mask of the rows that are written; None: all."""
        before, deletes = pc.equal(kinds, 1), pc.equal(kinds, 3)
        dropped = pa.scalar(False)
        if self.rules.ignore_deletes:
            dropped = pc.or_(before, deletes)
        elif self.rules.ignore_before:
            dropped = before
        for kind, mask in ((1, before), (3, deletes)):
            if kind not in self.rules.retractions and pc.any(pc.and_not(mask, dropped)).as_py():
                raise BadRowError(
                    f"{self.table} has the merge engine '{self.rules.engine}', and a row is of kind {_KINDS[kind]}, "
                    "which it does not accept with its options. Filter such rows out, or set an option of the table: "
                    f"'ignore-delete' = 'true' drops them{_WHAT_ELSE.get(self.rules.engine, '')}."
                )
        return pc.invert(dropped) if isinstance(dropped, pa.Array) and pc.any(dropped).as_py() else None


def row_layout(
    schema: pa.Schema,
    table: TargetTable,
    *,
    kind_column: str | None = None,
    case_sensitive: bool = False,
    shown: Mapping[str, str] | None = None,
    advice: str = "",
    keeps_nulls: bool = False,
) -> RowLayout:
    """Match given columns with those of a table, by name.

    A column that the table lacks is refused, so that a misspelled one is never lost. A column that is not given becomes
    null if it is nullable, or its default value, as every null of that column does (unless `keeps_nulls`). The table's
    type must hold every value of the given type, or be one whose values can be checked one by one (lengths, fractions
    of seconds).

    Args:
        kind_column: Column of row kinds; None: `_row_kind`, if the table has no such column.
        case_sensitive: Whether names must agree in case. If not, a name that differs only in case matches too.
        keeps_nulls: Whether given nulls stay null in columns with a default value.

    Raises:
        SchemaMismatchError: They do not fit; the message names every difference.
    """
    names = GivenNames(schema.names, {field.name for field in table.fields}, case_sensitive=case_sensitive)
    kind = _kind_position(names, table, kind_column)
    problems, columns, used = [], [], set() if kind is None else {kind}
    for field in table.fields:
        try:
            source = names.find(field.name)
        except ValueError as error:
            problems.append(str(error))
            continue
        if source is not None:
            used.add(source)
        target = arrow_type(field.type)
        default = _default(field, table.zone)
        problem = (
            _missing(field, default) if source is None else _unfit(schema.field(source), field, target, shown or {})
        )
        if problem is not None:
            problems.append(problem)
        length = re.fullmatch(r"(?:VAR)?(?:CHAR|BINARY)\((\d+)\)(?: NOT NULL)?", str(field.type))
        limit = int(length[1]) if length else None
        form = table.blobs.get(field.name)
        if keeps_nulls and source is not None:
            default = None
        bounds = _date_bounds(target) if field.name in table.dated else None
        columns.append(
            _Column(field.name, source, target, field.type.nullable, str(field.type), limit, default, form, bounds)
        )
    extra = [name for position, name in enumerate(schema.names) if position not in used]
    if extra:
        problems.append(f"the table has no column {quoted(extra)}{advice}")
    if problems:
        raise SchemaMismatchError(f"The columns do not fit {table.name}: {'; '.join(problems)}. Nothing was written.")
    return RowLayout(table.name, tuple(columns), kind, table.rules)


def _kind_position(names: GivenNames, table: TargetTable, kind_column: str | None) -> int | None:
    implied = kind_column is None
    name = ROW_KIND if kind_column is None else kind_column
    if implied and any(field.name == name for field in table.fields):
        return None
    position = names.find(name)
    if position is None:
        if not implied:
            raise SchemaMismatchError(f"Column '{name}', which is to hold the row kinds, is missing.")
        return None
    if not table.rules.keyed:
        raise SchemaMismatchError(
            f"Column '{name}' holds row kinds, and {table.name} has no primary key: rows can only be appended to it. "
            "Filter for the rows that you want and drop the column, or write to a primary-key table."
        )
    return position


def _missing(field: Any, default: pa.Array | None) -> str | None:
    if default is None and not field.type.nullable:
        return f"column '{field.name}' ({field.type}) is missing"
    return None


def _default(field: Any, zone: TimeZone) -> pa.Array | None:
    """The default value of a column, read from its text as Java does; None: the column has no default."""
    text = field.default_value
    if text is None:
        return None
    if len(text) > 1 and text[0] == text[-1] == "'":
        text = text[1:-1]
    try:
        if not isinstance(field.type, AtomicType):
            raise CastError("only plain types have default values here")
        return cast(AtomicType("STRING"), field.type, True, zone)(pa.array([text]))
    except CastError as error:
        raise UnsupportedTableError(
            f"Column '{field.name}' ({field.type}) has the default value {field.default_value!r}: {error}."
        ) from error


def _unfit(source: pa.Field, field: Any, target: pa.DataType, shown: Mapping[str, str]) -> str | None:
    given = normal_type(source.type)
    if isinstance(field.type, MultisetType) and pa.types.is_map(given):
        # Nulls among the counts are refused when the rows arrive.
        given = pa.map_(given.key_type, given.item_field.with_nullable(False))
    if fits(given, target):
        return None
    return f"column '{source.name}' is {shown.get(source.name, source.type)}, and the table's is {field.type}"


def fits(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether every value of a type fits another type, or is checked when it is written."""
    if source.equals(target) or pa.types.is_null(source):
        return True
    if pa.types.is_nested(source) or pa.types.is_nested(target):
        return _nested_fits(source, target)
    if source in _INTEGERS:
        digits = _INTEGERS[source]
        if target in _INTEGERS:
            return digits <= _INTEGERS[target]
        if pa.types.is_decimal(target):
            return bool(digits <= target.precision - target.scale)
    if target in _EXACT_FLOATS:
        return source in _EXACT_FLOATS[target]
    if pa.types.is_decimal(source) and pa.types.is_decimal(target):
        whole = source.precision - source.scale <= target.precision - target.scale
        return bool(whole and source.scale <= target.scale)
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        return bool((source.tz is None) == (target.tz is None))
    for family in (_is_text, _is_bytes, pa.types.is_time):
        if family(source):
            return bool(family(target))
    return False


def _nested_fits(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        pairs = zip(source, target, strict=False)
        return source.num_fields == target.num_fields and all(
            one.name == other.name and _element_fits(one, other) for one, other in pairs
        )
    if pa.types.is_map(source) and pa.types.is_map(target):
        return fits(source.key_type, target.key_type) and _element_fits(source.item_field, target.item_field)
    if _is_list(source) and (_is_list(target) or pa.types.is_fixed_size_list(target)):
        return _element_fits(source.value_field, target.value_field)
    return False


def _element_fits(source: pa.Field, target: pa.Field) -> bool:
    return fits(source.type, target.type) and (target.nullable or not source.nullable)


def _is_list(each: pa.DataType) -> bool:
    return bool(pa.types.is_list(each) or pa.types.is_large_list(each))


def _is_text(each: pa.DataType) -> bool:
    return bool(pa.types.is_string(each) or pa.types.is_large_string(each))


def _is_bytes(each: pa.DataType) -> bool:
    return bool(pa.types.is_binary(each) or pa.types.is_large_binary(each))


def _check_length(values: pa.Array, column: _Column, table: str) -> None:
    lengths = pc.utf8_length(values) if pa.types.is_string(values.type) else pc.binary_length(values)
    longest = pc.max(lengths).as_py()
    if longest is not None and column.max_length is not None and longest > column.max_length:
        raise BadRowError(
            f"Column '{column.name}' of {table} is {column.shown}, and a row holds a value of length {longest}."
        )


def _dated_keys(table: PaimonTable) -> list[str]:
    bucket_key = (option_keys.BUCKET_KEY.of(table.options) or "").split(",")
    keys = {*table.primary_keys, *table.partition_keys, *(name.strip() for name in bucket_key)}
    return [
        field.name for field in table.fields if field.name in keys and str(field.type).startswith(("DATE", "TIMES"))
    ]


def _check_date_range(values: pa.Array, column: _Column, table: str) -> None:
    """Check that a column holds years from 1 to 9999, because Python's dates, which name partitions, hold no others."""
    assert column.bounds is not None
    found = pc.min_max(values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64()))
    least, greatest = found["min"].as_py(), found["max"].as_py()
    if least is not None and (least < column.bounds[0] or greatest > column.bounds[1]):
        raise BadRowError(
            f"Column '{column.name}' of {table} decides the partition or bucket of a row, and a row holds a time "
            "outside of the years 1 to 9999 in it: such times are not written here."
        )


def _date_bounds(kind: pa.DataType) -> tuple[int, int] | None:
    if pa.types.is_date32(kind):
        return _DAYS
    if not pa.types.is_timestamp(kind) or kind.unit not in _UNITS:
        return None
    unit = _UNITS[kind.unit]
    return _SECONDS[0] * unit, _SECONDS[1] * unit + unit - 1
