"""`copied_schema`: a new table that can hold the copy of another one; and which tables can not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pypaimon.streaming.builder.copied_stream import RECORD_EXPIRY
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.merge.engines.factory import IGNORE_DELETE
from pypaimon.streaming.options.option_values import OptionValues
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


def refuse_merging(target: TableSchema, source: TableSchema, name: str) -> None:
    """Refuse a table with a primary key whose own options would make other rows of the changes of its source.

    Options that the source has as well are taken, unless its changes are merged already.

    Args:
        target: Schema of the table.
        source: Of the one that is copied.
        name: Of the table.

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
    """Options by which a table does not hold the newest record of each key."""
    options, engine = OptionValues(schema.options), TableTraits.of(schema).merge_engine
    found = {} if engine.keeps_newest else {"merge-engine": engine.value}
    texts = {key: options.text(key) for key in ("sequence.field", RECORD_EXPIRY)}
    found |= {key: value for key, value in texts.items() if value}
    return found | {key: "true" for key in IGNORE_DELETE if options.boolean(key, False)}


def _options(schema: TableSchema) -> dict[str, str]:
    given: Mapping[str, str] = schema.options
    is_merged = _gives_merged_changes(schema)
    left_out = (*_OF_READS, *_OF_MERGING) if is_merged else _OF_READS
    options = {key: value for key, value in given.items() if key not in _OF_THE_PLACE and not key.startswith(left_out)}
    return {**options, "changelog-producer": "input"} if is_merged else options


def _gives_merged_changes(schema: TableSchema) -> bool:
    traits = TableTraits.of(schema)
    return traits.primary_key and traits.producer.complete
