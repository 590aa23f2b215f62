"""`table_changes`: change records as rows of a table, and how the table must be altered first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pypaimon.streaming.cdc.change_reader import read_changes, reading_of, to_arrow
from pypaimon.streaming.cdc.change_records import ChangeRecord
from pypaimon.streaming.cdc.new_columns import Alteration, alterations, check_policy, refuse_new_columns
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.paimon.internals import AtomicType, DataField


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
    """The rows of a call, and the alterations that they need."""

    rows: pa.Table
    alterations: Sequence[Alteration]


def table_changes(
    table: PaimonTable, records: Iterable[ChangeRecord], settings: ChangeSettings, kind_column: str
) -> TableChanges:
    """Read change records. Nothing is altered or written here.

    Raises:
        StreamConfigError: A setting is invalid, or `records` is a single record.
        BadChangeError: A record cannot be read, or does not fit the table.
    """
    check_policy(settings.on_new_column)
    reading = reading_of(settings.time_unit, settings.time_zone)
    if isinstance(records, (str, bytes, Mapping)) or not isinstance(records, Iterable):
        raise StreamConfigError(
            f"write_changes: expected several records, such as a list, got {type(records).__name__}"
        )
    found = read_changes(records, settings.form, table.primary_keys, settings.unavailable_value_placeholder)
    fields: Sequence[DataField] = table.fields
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
