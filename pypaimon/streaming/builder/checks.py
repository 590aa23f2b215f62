"""What a builder refuses for the table's sake: tables that cannot be streamed, columns that are not there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.internals import FileStoreTable
from pypaimon.streaming.options.option_values import OptionValues

_CHAIN = "chain-table.enabled"
_CHAIN_BRANCHES = ("scan.fallback-snapshot-branch", "scan.fallback-delta-branch")
_OTHER_BRANCH = ("scan.fallback-branch", "scan.primary-branch")


def refuse_unstreamable(table: Any) -> None:
    """Refuse what has no snapshots of one branch to follow.

    Raises:
        UnsupportedTableError: It is no table of Paimon's own format, or one that reads several branches.
    """
    if not isinstance(table, FileStoreTable):
        raise UnsupportedTableError(
            f"{type(table).__name__} cannot be streamed: only tables of Paimon's own format have snapshots to follow. "
            "For a view of one (audit_log, binlog, ro, row_tracking) use stream_read_builder(table, view=...)."
        )
    options = OptionValues(table.table_schema.options)
    if options.boolean(_CHAIN, False):
        _refuse_chain(table, options)
        return
    for key in _OTHER_BRANCH:
        if options.text(key):
            raise UnsupportedTableError(
                f"Tables with '{key}' = '{options.text(key)}' cannot be streamed: a stream follows one branch. "
                "Load the branch to follow, 'db.table$branch_<name>', without this option."
            )


def _refuse_chain(table: Any, options: OptionValues) -> None:
    """A chain table is read from two branches; these, and one that lacks them, are ordinary tables."""
    branches = [options.text(key) for key in _CHAIN_BRANCHES]
    if None in branches or str(table.current_branch()).lower() in (str(name).lower() for name in branches):
        return
    name = f"{table.identifier.get_database_name()}.{table.identifier.get_table_name()}"
    raise UnsupportedTableError(
        f"The chain table {name} cannot be streamed as a whole: a stream follows one branch. Changes are written to "
        f"'{name}$branch_{branches[1]}', what they go on from is in '{name}$branch_{branches[0]}': load one of these."
    )


def known_columns(what: str, names: Iterable[Any], known: set[str]) -> tuple[str, ...]:
    """Names of columns, or of fields in them (`row.field`), that are there."""
    names = tuple(names)
    for name in names:
        if not isinstance(name, str) or (name not in known and name.split(".")[0] not in known):
            raise StreamConfigError(f"{what}: there is no column {name!r}; columns: {', '.join(sorted(known))}")
    return names
