"""Commands about several tables of a database, which a pattern names."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import click

from pypaimon.streaming.catalog_access import naming_causes, reach, table_of
from pypaimon.streaming.cli.messages import say, text_of
from pypaimon.streaming.cli.options import option
from pypaimon.streaming.cli.tables import TableSource, patiently
from pypaimon.streaming.databases.events import DatabaseEvent, TableDropped, TableRenamed, TableSkipped
from pypaimon.streaming.databases.tables_of_database import TablesOfDatabase, matches
from pypaimon.streaming.errors import PaimonStreamError, TablesFailedError
from pypaimon.streaming.io.io_pool import IOPool

T = TypeVar("T")
_GLOB = frozenset("*?[")
_AT_ONCE = 8
"""Tables that are read at the same time."""
FAILED, TRY_AGAIN = 1, 75


@dataclass(frozen=True)
class TableChoice:
    include: str | None = option(
        "--include", metavar="REGEX", help="Of the tables that a pattern names, only those that match this wholly."
    )
    exclude: str | None = option(
        "--exclude", metavar="REGEX", help="Of the tables that a pattern names, not those that match this wholly."
    )


@dataclass(frozen=True)
class TablesOfPattern:
    """The tables of a database that a pattern names: `db.orders_*`.

    Attributes:
        exclude: A regular expression that it must not match, or None.
    """

    source: TableSource
    database: str
    include: str
    exclude: str | None

    @staticmethod
    def of(source: TableSource, choice: TableChoice) -> TablesOfPattern | None:
        """The tables that TABLE matches; None if it names a single table."""
        include, exclude = choice.include, choice.exclude
        database, _, glob = source.name.partition(".")
        if not _GLOB.intersection(glob):
            if include is not None or exclude is not None:
                raise click.UsageError(f"--include and --exclude choose among tables: give TABLE as '{database}.*'")
            return None
        if source.view is not None or "$" in glob:
            raise click.UsageError(f"{source.name!r}: views and branches are asked for one by one, not by a pattern")
        _check("--include", include)
        _check("--exclude", exclude)
        return TablesOfPattern(source, database, f"(?={fnmatch.translate(glob)})(?:{include or '.*'})", exclude)

    @property
    def text(self) -> str:
        return self.source.name

    def matches(self, name: str) -> bool:
        return matches(name, *self._expressions)

    @property
    def _expressions(self) -> tuple[re.Pattern[str], re.Pattern[str] | None]:
        return re.compile(self.include), None if self.exclude is None else re.compile(self.exclude)

    def names(self, retry: bool = False) -> list[str]:
        """The sorted names of the existing tables. One listing.

        Raises:
            StoreError: The store failed, or did not answer in time.
        """
        source = self.source
        retry = retry or source.patient
        ask = partial(reach, source.catalog_options, source.connect_timeout, self._names, retry, say)
        return patiently(ask) if retry else ask()

    def _names(self) -> list[str]:
        catalog = self.source.catalog()
        tables = TablesOfDatabase(catalog, self.database, *self._expressions)
        with naming_causes(self.source.catalog_options, self.text, catalog):
            return sorted(tables.names())

    def ask_each(self, call: Callable[[TableSource, Any], T]) -> dict[str, T | Exception]:
        """The result or the error of a call for each table, by name. Views and foreign tables are left out.

        Args:
            call: Called on several threads with the source of a table and pypaimon's table.
        """
        names = self.names()
        catalog = self.source.catalog()
        pool = IOPool(_AT_ONCE, timeout=float("inf"), name="paimon-tables")
        try:
            asked = {name: pool.submit(self._answer, catalog, name, call) for name in names}
            found = {name: pool.result(future) for name, future in asked.items()}
        finally:
            pool.close()
        return {name: answer for name, answer in found.items() if answer is not None}

    def _answer(self, catalog: Any, name: str, call: Callable[[TableSource, Any], T]) -> T | Exception | None:
        ask = partial(self._ask, catalog, name, call)
        try:
            return patiently(ask) if self.source.patient else ask()
        except Exception as error:  # noqa: BLE001 - the caller reports it for this table
            return error

    def _ask(self, catalog: Any, name: str, call: Callable[[TableSource, Any], T]) -> T | None:
        source = replace(self.source, name=f"{self.database}.{name}")
        table = table_of(catalog, source.catalog_options, source.name)
        if not hasattr(table, "table_schema"):
            return None
        return call(source, table.copy(source.table_options) if source.table_options else table)


def say_failures(failures: Mapping[str, Exception]) -> int:
    """Print the errors of tables on stderr; returns the exit code: 0 without errors."""
    for name, error in sorted(failures.items()):
        say(f"{name}: {text_of(error, of_tables=True)}")
    if not failures:
        return 0
    passes = all(isinstance(error, PaimonStreamError) and error.retriable for error in failures.values())
    return TRY_AGAIN if passes else FAILED


def _check(option: str, text: str | None) -> None:
    try:
        re.compile(text or "")
    except re.error as error:
        raise click.UsageError(f"{option} {text!r}: invalid regular expression: {error}") from error


def refuse_for_pattern(pattern: TablesOfPattern, given: Mapping[str, object]) -> None:
    """Raise click.UsageError if an option of a single table has a value."""
    for name, value in {**given, "--table-option": pattern.source.table_options}.items():
        if value:
            raise click.UsageError(f"{name} goes with one table, not with {pattern.text}")


def say_event(event: DatabaseEvent) -> None:
    """Say what happens to tables apart from their rows; errors are in the log."""
    if isinstance(event, TableSkipped):
        text = f"{event.table} is passed over: {' '.join(event.reason.split())}"
    elif isinstance(event, TableDropped):
        text = f"{event.table} was dropped"
    elif isinstance(event, TableRenamed):
        text = f"{event.former} was renamed to {event.table}"
    else:
        return
    say(text)


def refuse_failed(failed: Mapping[str, Exception]) -> None:
    if failed:
        raise TablesFailedError(failed)
