"""Which columns a data file holds, by its schema and manifest, where the file itself does not say."""

from __future__ import annotations

from collections.abc import Sequence

from pypaimon.streaming.internals import DataField, SpecialFields, TableSchema
from pypaimon.streaming.model.system_columns import KEY_PREFIX
from pypaimon.streaming.options.option_values import OptionValues


def stored_fields(schema: TableSchema, write_cols: Sequence[str] | None) -> list[DataField]:
    """The columns of a file, in the order in which they are stored.

    A file of a primary-key table begins with copies of the key columns (but with `data-file.thin-mode`), the sequence
    number and the row kind. One of data evolution may hold some columns only.

    Args:
        schema: The schema that the file was written with.
        write_cols: The columns that its manifest names; None: all.
    """
    fields = list(schema.fields)
    if write_cols is not None:
        by_name = {field.name: field for field in (*fields, SpecialFields.ROW_ID, SpecialFields.SEQUENCE_NUMBER)}
        return [by_name[name] for name in write_cols]
    if not schema.primary_keys:
        return fields
    types = {field.name: field.type for field in fields}
    keys = [name for name in schema.primary_keys if name not in schema.partition_keys]
    if OptionValues(schema.options).boolean("data-file.thin-mode", False):
        keys = []
    copies = [DataField(-1, KEY_PREFIX + name, types[name]) for name in keys]
    return [*copies, SpecialFields.SEQUENCE_NUMBER, SpecialFields.VALUE_KIND, *fields]
