"""How a table gets the columns of change records that it lacks: columns are added, and types widened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, get_args

import pyarrow as pa

from pypaimon.streaming.cdc.change_reader import ChangeRows, read_changes, reading_of, to_arrow
from pypaimon.streaming.cdc.change_records import ChangeRecord
from pypaimon.streaming.cdc.change_values import BadValueError, Reading, column_of, converter
from pypaimon.streaming.errors import BadChangeError, SchemaChangeRefusedError, StreamConfigError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.data_types import parameter, root
from pypaimon.streaming.paimon.handles import dynamic_options
from pypaimon.streaming.paimon.internals import AtomicType, DataField, PyarrowFieldParser
from pypaimon.streaming.paimon.write_internals import ColumnAlreadyExistException, SchemaChange

OnNewColumn = Literal["fail", "add", "ignore"]

_INTEGERS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}
_UNLIMITED = {"CHAR": "STRING", "VARCHAR": "STRING", "BINARY": "BYTES", "VARBINARY": "BYTES"}
_MOST_DIGITS = 38
_ANY_NUMBER = AtomicType("DECIMAL(38, 0)")
_MOST_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Alteration:
    """One change of a column.

    Attributes:
        present: Its current type; None: the column does not exist.
    """

    column: str
    type: str
    present: AtomicType | None = None


def check_policy(on_new_column: str) -> None:
    if on_new_column not in get_args(OnNewColumn):
        raise StreamConfigError(f"on_new_column: expected 'fail', 'add' or 'ignore', got {on_new_column!r}")


def refuse_new_columns(found: Sequence[ChangeRows], fields: Sequence[DataField], table: str) -> None:
    known = {field.name for field in fields}
    for changes in found:
        new = next((name for name in changes.names if name not in known), None)
        if new is not None:
            record = next(number for number, row in zip(changes.records, changes.rows, strict=True) if new in row)
            raise BadChangeError(
                record,
                new,
                f"{table} lacks this column.",
                advice="Add it, or choose on_new_column='add', which adds it automatically, or on_new_column='ignore', "
                "which leaves it out.",
                option="on_new_column",
            )


def alterations(
    found: Sequence[ChangeRows], fields: Sequence[DataField], keys: Iterable[str], reading: Reading
) -> list[Alteration]:
    """The changes of a table that make change records fit.

    A missing column is added once a row has a value in it: with the type that the records declare, otherwise as BOOLEAN
    or BIGINT if all values fit that, otherwise as STRING, which loses nothing. A type is widened if a value does not
    fit it: integers up to BIGINT, decimals up to 38 digits, text and bytes of limited length to STRING and BYTES. Key
    columns keep their types, because they decide the partition and bucket of a row.
    """
    known = {field.name for field in fields}
    added = {
        name: type_text
        for name in dict.fromkeys(name for changes in found for name in changes.names if name not in known)
        if (type_text := _new_type(name, found)) is not None
    }
    wider = [
        Alteration(field.name, type_text, field.type)
        for field in fields
        if field.name not in keys and isinstance(field.type, AtomicType)
        if (type_text := _wider_type(field, found, reading)) is not None
    ]
    return [*(Alteration(name, type_text) for name, type_text in added.items()), *wider]


def altered(table: PaimonTable, wanted: Sequence[Alteration]) -> PaimonTable:
    """Alter a table. Returns it as it is then, with the options of the given handle.

    Raises:
        SchemaChangeRefusedError: The catalog refuses the change.
    """
    loader = table.handle.catalog_environment.catalog_loader
    if loader is None:
        raise StreamConfigError(
            "on_new_column='add' needs a table of a catalog, which alters it: catalog.get_table(...)"
        )
    catalog = loader.load()
    for _ in range(_MOST_ATTEMPTS):
        fresh = catalog.get_table(table.identifier)
        missing = _missing(wanted, fresh.fields)
        if not missing:
            return PaimonTable(fresh.copy(options) if (options := dynamic_options(table.handle)) else fresh)
        try:
            catalog.alter_table(table.identifier, [_schema_change(each) for each in missing])
        except (ColumnAlreadyExistException, RuntimeError, ValueError) as error:
            # Another writer may have altered it at the same time.
            if _missing(wanted, catalog.get_table(table.identifier).fields) == missing:
                raise SchemaChangeRefusedError(f"{table.name} could not get {_listed(missing)}: {error}") from error
    raise SchemaChangeRefusedError(f"{table.name} could not be altered, because others keep altering it")


def _missing(wanted: Sequence[Alteration], fields: Sequence[DataField]) -> list[Alteration]:
    """The alterations that are not made yet. A column that others have altered meanwhile stays as it is now."""
    now = {field.name: field.type for field in fields}
    return [each for each in wanted if now.get(each.column) == each.present]


def _schema_change(each: Alteration) -> Any:
    if each.present is None:
        return SchemaChange.add_column(each.column, AtomicType(each.type))
    return SchemaChange.update_column_type(each.column, AtomicType(each.type, each.present.nullable))


def _listed(wanted: Sequence[Alteration]) -> str:
    return ", ".join(f"column '{each.column}' as {each.type}" for each in wanted)


def _new_type(name: str, found: Sequence[ChangeRows]) -> str | None:
    """The type of a missing column; None: no row has a value in it yet."""
    values = [value for changes in found for value in changes.values(name) if value is not None]
    if not values:
        return None
    declared = [changes.says_of(name) for changes in found if name in changes.names]
    if len({each.type for each in declared}) == 1 and declared[0].type is not None:
        return declared[0].type
    # Times in several units must not become BIGINT: a type of times takes each value exactly, or refuses it.
    if timed := [each.type for each in declared if each.unit is not None]:
        return timed[-1]
    kinds = set(map(type, values))
    if kinds == {bool}:
        return "BOOLEAN"
    if kinds == {int} and all(-(2**63) <= value < 2**63 for value in values):
        return "BIGINT"
    return "STRING"


def _wider_type(field: DataField, found: Sequence[ChangeRows], reading: Reading) -> str | None:
    """The wider type that a column needs to hold the values; None: it holds them already, or no type does."""
    name = root(field.type)
    if name in _UNLIMITED:
        limit = parameter(field.type)
        return _UNLIMITED[name] if limit is not None and _longest(field, found, reading) > limit else None
    if name not in _INTEGERS and name != "DECIMAL":
        return None
    if all(_holds(field, changes, reading) for changes in found if field.name in changes.names):
        return None
    numbers = _numbers(field.name, found, reading)
    if numbers is None:
        return None
    if name == "DECIMAL":
        return _decimal_type(field, numbers)
    for wider, bits in _INTEGERS.items():
        if bits > _INTEGERS[name] and all(_is_whole(number, bits) for number in numbers):
            return wider
    return None


def _holds(field: DataField, changes: ChangeRows, reading: Reading) -> bool:
    try:
        column_of(changes.values(field.name), field.type, changes.says_of(field.name), reading)
    except BadValueError:
        return False
    return True


def _numbers(name: str, found: Sequence[ChangeRows], reading: Reading) -> list[Decimal] | None:
    numbers = []
    try:
        for changes in found:
            convert = converter(_ANY_NUMBER, changes.says_of(name), reading)
            numbers += [convert(value) for value in changes.values(name) if value is not None]
    except (ValueError, ArithmeticError):
        return None
    return numbers


def _is_whole(number: Decimal, bits: int) -> bool:
    return -(2**bits) <= number < 2**bits and number == int(number)


def _decimal_type(field: DataField, numbers: Iterable[Decimal]) -> str | None:
    present = PyarrowFieldParser.from_paimon_type(field.type)
    whole, scale = present.precision - present.scale, present.scale
    for number in numbers:
        scale = max(scale, -int(number.as_tuple().exponent))
        whole = max(whole, number.adjusted() + 1)
    return f"DECIMAL({whole + scale}, {scale})" if whole + scale <= _MOST_DIGITS else None


def _longest(field: DataField, found: Sequence[ChangeRows], reading: Reading) -> int:
    unlimited = AtomicType(_UNLIMITED[root(field.type)])
    longest = 0
    for changes in found:
        if field.name in changes.names:
            try:
                column = column_of(changes.values(field.name), unlimited, changes.says_of(field.name), reading)
            except BadValueError:
                continue
            longest = max([longest, *(len(value) for value in column.to_pylist() if value is not None)])
    return longest


@dataclass(frozen=True, slots=True)
class ChangeSettings:
    """How change records are read.

    Attributes:
        time_unit: Unit of numbers that are timestamps or times of day, if the records do not declare it: ms, us or ns.
        unavailable_value_placeholder: What Debezium writes for a value that the database did not send; None: its
            default.
    """

    form: str
    on_new_column: str = "fail"
    time_unit: str | None = None
    time_zone: str | None = None
    unavailable_value_placeholder: str | None = None


@dataclass(frozen=True, slots=True)
class TableChanges:
    rows: pa.Table
    alterations: Sequence[Alteration]


def table_changes(
    table: PaimonTable, records: Iterable[ChangeRecord], settings: ChangeSettings, kind_column: str
) -> TableChanges:
    """Read change records. Nothing is altered or written here.

    Raises:
        BadChangeError: A record cannot be read, or does not fit the table.
    """
    check_policy(settings.on_new_column)
    reading = reading_of(settings.time_unit, settings.time_zone)
    if isinstance(records, (str, bytes, Mapping)) or not isinstance(records, Iterable):
        raise StreamConfigError(
            f"write_changes: expected several records, such as a list, got {type(records).__name__}"
        )
    fields: Sequence[DataField] = table.fields
    names = [field.name for field in fields]
    found = read_changes(records, settings.form, table.primary_keys, settings.unavailable_value_placeholder, names)
    wanted: Sequence[Alteration] = ()
    if settings.on_new_column == "fail":
        refuse_new_columns(found, fields, table.name)
    elif settings.on_new_column == "add":
        bucket_keys = table.schema.logical_bucket_key_fields if table.total_buckets > 0 else ()
        fixed = {*table.primary_keys, *table.partition_keys, *(field.name for field in bucket_keys)}
        wanted = alterations(found, fields, fixed, reading)
        fields = _after(fields, wanted)
    parts = [to_arrow(changes, fields, reading, kind_column if table.primary_keys else None) for changes in found]
    rows = pa.concat_tables(parts, promote_options="default") if parts else pa.table({})
    return TableChanges(rows, wanted)


def _after(fields: Sequence[DataField], wanted: Sequence[Alteration]) -> list[DataField]:
    wider = {each.column: each.type for each in wanted if each.present is not None}
    new = [DataField(-1, each.column, AtomicType(each.type)) for each in wanted if each.present is None]
    changed = [
        DataField(field.id, field.name, AtomicType(wider[field.name], field.type.nullable))
        if field.name in wider
        else field
        for field in fields
    ]
    return [*changed, *new]
