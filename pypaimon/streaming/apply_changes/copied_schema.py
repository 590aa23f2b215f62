"""`copied_schema`: a new table that can hold the copy of another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.write_internals import Schema

COPIED_FROM = "pypaimon.copied-from"
"""Option of a table that a copy of a database has made: of what it is a copy, and which columns it has."""

_OF_THE_PLACE = ("path", "branch", "type", "provider", "rowkind.field", COPIED_FROM)
_OF_READS = ("scan.", "consumer", "incremental-", "log.", "data-file.external-paths")
_OF_MERGING = (
    "merge-engine",
    "partial-update.",
    "aggregation.",
    "fields.",
    "ignore-",
    "deduplicate.",
    "first-row.",
    "sequence.",
    "changelog-producer",
    "full-compaction.",
    "lookup",
)


def copied_schema(schema: TableSchema, columns: Sequence[Any], changes: Mapping[str, str]) -> Schema:
    """What a new table is made of, so that it can hold the copy of columns of another one and its keys.

    It has the options of the other one but those that say where it lies and how it is read. Where a stream gives
    complete changes, as they come of merging, the copy merges nothing: its newest row counts, and what comes is its
    changelog.

    Args:
        schema: Of the table to be copied.
        columns: pypaimon's fields of those that are copied.
        changes: Options that it gets besides, or instead.

    Raises:
        StreamConfigError: Such a table is not written here.
    """
    if schema.primary_keys and not {*schema.partition_keys} <= {*schema.primary_keys}:
        raise StreamConfigError("keys of the source move between partitions, and such tables are not written here")
    options = {**_options(schema), **changes}
    return Schema(list(columns), list(schema.partition_keys), list(schema.primary_keys), options)


def _options(schema: TableSchema) -> dict[str, str]:
    given: Mapping[str, str] = schema.options
    is_merged = _gives_merged_changes(schema)
    left_out = (*_OF_READS, *_OF_MERGING) if is_merged else _OF_READS
    options = {key: value for key, value in given.items() if key not in _OF_THE_PLACE and not key.startswith(left_out)}
    return {**options, "changelog-producer": "input"} if is_merged else options


def _gives_merged_changes(schema: TableSchema) -> bool:
    traits = TableTraits.of(schema)
    return traits.primary_key and traits.producer.complete
