"""`copied_schema`: the schema of a new table that holds a copy; and the tables that cannot hold one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.paimon.internals import TableSchema
from pypaimon.streaming.paimon.write_internals import Schema

COPIED_FROM = "pypaimon.copied-from"
"""Option of a table made by a copy of a database: which table it is a copy of, and its columns."""

_OF_THE_PLACE = ("path", "branch", "type", "provider", option_keys.ROWKIND_FIELD.name, COPIED_FROM)
_OF_READS = ("scan.", "consumer", "incremental-", "log.", option_keys.DATA_FILE_EXTERNAL_PATHS.name)
_OF_MERGING = (
    option_keys.MERGE_ENGINE.name,
    "partial-update.",
    "aggregation.",
    "fields.",
    "ignore-",
    "deduplicate.",
    "first-row.",
    "sequence.",
    option_keys.CHANGELOG_PRODUCER.name,
    "full-compaction.",
    "lookup",
)


def copied_schema(schema: TableSchema, columns: Sequence[Any], changes: Mapping[str, str]) -> Schema:
    """The schema of a new table that can hold a copy of some columns of another one.

    It has the keys and options of the source, except for options of its location and of reads. If the stream of the
    source gives merged changes (producer `lookup` or `full-compaction`), the copy does not merge again: the newest row
    of a key counts, and the changes are its changelog.

    Args:
        schema: The schema of the source.
        columns: pypaimon's fields of the copied columns.
        changes: Options to add or replace.

    Raises:
        StreamConfigError: This package cannot write such a table.
    """
    if schema.primary_keys and not {*schema.partition_keys} <= {*schema.primary_keys}:
        raise StreamConfigError("keys of the source move between partitions, and such tables are not written here")
    options = {**_options(schema), **changes}
    return Schema(list(columns), list(schema.partition_keys), list(schema.primary_keys), options)


def refuse_merging(target: TableSchema, source: TableSchema, name: str) -> None:
    """Refuse a table with a primary key whose options would merge the changes to other rows than the source has.

    An option that the source has as well is allowed, unless its changes are merged already.

    Args:
        target: The schema of the table.
        source: The schema of the source.
        name: The name of the table.

    Raises:
        StreamConfigError: There is such an option.
    """
    if not target.primary_keys:
        return
    found = _merging(target)
    if not _gives_merged_changes(source):
        found = {key: value for key, value in found.items() if _merging(source).get(key) != value}
    if found:
        shown = ", ".join(f"'{key}' = '{value}'" for key, value in found.items())
        raise StreamConfigError(
            f"{name} has {shown}, so that it would not hold the rows of the table that is copied. Copy to a table "
            "without it, as copy --create makes one. If others fill the same rows, give PaimonTarget shared=True, with "
            "which it need not be equal to its source."
        )


def _merging(schema: TableSchema) -> dict[str, str]:
    """Options by which a table may hold other rows than the newest record of each key."""
    options, engine = schema.options, TableTraits.of(schema).merge_engine
    found = {} if engine.keeps_newest else {option_keys.MERGE_ENGINE.name: engine.value}
    for key in (option_keys.SEQUENCE_FIELD, option_keys.RECORD_LEVEL_EXPIRE_TIME):
        if value := key.text(options):
            found[key.name] = value
    ignoring = option_keys.IGNORE_DELETE.set_as(options)
    return found | {ignoring: "true"} if ignoring and option_keys.IGNORE_DELETE.of(options) else found


def _options(schema: TableSchema) -> dict[str, str]:
    given: Mapping[str, str] = schema.options
    is_merged = _gives_merged_changes(schema)
    left_out = (*_OF_READS, *_OF_MERGING) if is_merged else _OF_READS
    options = {key: value for key, value in given.items() if key not in _OF_THE_PLACE and not key.startswith(left_out)}
    return {**options, option_keys.CHANGELOG_PRODUCER.name: "input"} if is_merged else options


def _gives_merged_changes(schema: TableSchema) -> bool:
    traits = TableTraits.of(schema)
    return traits.primary_key and traits.producer.complete
