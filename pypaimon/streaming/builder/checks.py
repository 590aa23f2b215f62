"""Checks of a builder against its table: tables that cannot be streamed, columns that do not exist."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.metadata.table_handle import TableHandle
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.paimon.handles import ReadableTable
from pypaimon.streaming.paimon.internals import is_paimon_table

_OTHER_BRANCH = ("scan.fallback-branch", "scan.primary-branch")


def refuse_unstreamable(table: ReadableTable) -> None:
    """Refuse tables without snapshots of one branch to follow. A chain table has those of its delta branch.

    Raises:
        UnsupportedTableError: The table is not of Paimon's own format, or falls back to another branch.
    """
    if not isinstance(table, TableHandle) and not is_paimon_table(table):
        raise UnsupportedTableError(
            f"{type(table).__name__} cannot be streamed: only tables of Paimon's own format have snapshots to follow.",
            advice="For a view of one (audit_log, binlog, ro, row_tracking) use stream_read_builder(table, view=...).",
            option="stream_read_builder: view",
        )
    options = OptionValues(table.table_schema.options)
    if options.boolean("chain-table.enabled", False):
        return
    for key in _OTHER_BRANCH:
        if options.text(key):
            raise UnsupportedTableError(
                f"Tables with '{key}' = '{options.text(key)}' cannot be streamed: a stream follows one branch. "
                "Load the branch to follow, 'db.table$branch_<name>', without this option."
            )


def known_columns(what: str, names: Iterable[Any], known: set[str]) -> tuple[str, ...]:
    """The names, checked to be columns or fields in them (`row.field`)."""
    names = tuple(names)
    for name in names:
        if not isinstance(name, str) or (name not in known and name.split(".")[0] not in known):
            raise StreamConfigError(f"{what}: there is no column {name!r}; columns: {', '.join(sorted(known))}")
    return names
