"""A new table that can hold the copy of another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from pypaimon.streaming.internals import TableNotExistException
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.write_internals import Schema

_OF_THE_PLACE = ("path", "branch", "type", "provider", "rowkind.field")
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


def create_copy(table: Any, columns: Sequence[Any], name: str, catalog: Any, changes: Mapping[str, str]) -> bool:
    """Make a table of columns of another one and its keys, unless there is one of that name; whether it was made.

    It has the options of the other one but those that say where it lies and how it is read. Where a stream gives
    complete changes, as they come of merging, the copy merges nothing: its newest row counts, and what comes is its
    changelog.

    Args:
        table: The table to be copied.
        columns: pypaimon's fields of those that are copied.
        name: Of the new one, `database.table`.
        catalog: pypaimon's, of the new one.
        changes: Options that it gets besides, or instead.

    Raises:
        click.UsageError: Such a table is not written here.
    """
    try:
        catalog.get_table(name)
    except TableNotExistException:
        pass
    else:
        return False
    options = {**_options(table), **changes}
    if table.primary_keys and not {*table.partition_keys} <= {*table.primary_keys}:
        raise click.UsageError("keys of the source move between partitions, and such tables are not written here")
    schema = Schema(list(columns), list(table.partition_keys), list(table.primary_keys), options)
    catalog.create_database(name.partition(".")[0], True)
    catalog.create_table(name, schema, False)
    return True


def _options(table: Any) -> dict[str, str]:
    given: Mapping[str, str] = table.table_schema.options
    left_out = (*_OF_READS, *_OF_MERGING) if _merged_changes(table) else _OF_READS
    options = {key: value for key, value in given.items() if key not in _OF_THE_PLACE and not key.startswith(left_out)}
    return {**options, "changelog-producer": "input"} if _merged_changes(table) else options


def _merged_changes(table: Any) -> bool:
    traits = TableTraits.of(table.table_schema)
    return traits.primary_key and traits.producer.complete
