"""Commands about several tables of a database: which ones a pattern names, and what is asked of each."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast

import click

from pypaimon.streaming.cli.causes import naming_causes
from pypaimon.streaming.cli.contact import reach
from pypaimon.streaming.cli.secrets import say
from pypaimon.streaming.cli.tables import TableSource, patiently
from pypaimon.streaming.databases.tables_of_database import TablesOfDatabase, matches
from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.metadata.table_directory import naming_unreadable_types

C = TypeVar("C")
T = TypeVar("T")
_GLOB = frozenset("*?[")
_AT_ONCE = 8
"""Tables that are asked at the same time."""
FAILED, TRY_AGAIN = 1, 75


def pattern_options(command: C) -> C:
    """Give a command `--include` and `--exclude`, which go with a pattern in the place of TABLE."""
    for option in (
        click.option(
            "--exclude", metavar="REGEX", help="Of the tables that a pattern names, not those that match this wholly."
        ),
        click.option(
            "--include", metavar="REGEX", help="Of the tables that a pattern names, only those that match this wholly."
        ),
    ):
        command = cast(C, option(cast(Any, command)))
    return command


@dataclass(frozen=True)
class TablesOfPattern:
    """The tables of a database that a pattern names: `db.orders_*`.

    Attributes:
        source: How to get to them; its name is the pattern.
        database: The database.
        include: A regular expression that the whole name of each matches.
        exclude: One that it does not match, or None.
    """

    source: TableSource
    database: str
    include: str
    exclude: str | None

    @staticmethod
    def of(source: TableSource, include: str | None, exclude: str | None) -> TablesOfPattern | None:
        """Those that TABLE names; None: it names one table.

        Args:
            source: TABLE.
            include: `--include`.
            exclude: `--exclude`.

        Raises:
            click.UsageError: It names views, or one table though `--include` or `--exclude` is given; or one of these
                is no regular expression.
        """
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
        """The pattern, for messages."""
        return self.source.name

    def matches(self, name: str) -> bool:
        """Whether it names a table of this name."""
        return matches(name, *self._expressions)

    @property
    def _expressions(self) -> tuple[re.Pattern[str], re.Pattern[str] | None]:
        return re.compile(self.include), None if self.exclude is None else re.compile(self.exclude)

    def names(self, retry: bool = False) -> list[str]:
        """The names of those that there are, in their order. One listing.

        Args:
            retry: Whether to wait out errors that may pass.

        Raises:
            StreamConfigError: There is no such database.
            StoreError: The store fails, or does not answer in time.
        """
        source = self.source
        retry = retry or source.patient
        ask = partial(reach, source.catalog_options, source.connect_timeout, self._names, patiently=retry)
        return patiently(ask) if retry else ask()

    def _names(self) -> list[str]:
        catalog = self.source.catalog()
        tables = TablesOfDatabase(catalog, self.database, *self._expressions)
        with naming_causes(catalog, self.source.catalog_options, self.text):
            return sorted(tables.names())

    def ask_each(self, call: Callable[[TableSource, Any], T]) -> dict[str, T | Exception]:
        """What a call gives for each of them, or raises; by name. Views and foreign tables are left out.

        Args:
            call: Called with the source of one table and with pypaimon's table, on some threads.
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
        except Exception as error:  # noqa: BLE001 - it is the answer for this table, and told
            return error

    def _ask(self, catalog: Any, name: str, call: Callable[[TableSource, Any], T]) -> T | None:
        source = replace(self.source, name=f"{self.database}.{name}")
        with naming_unreadable_types("the table"), naming_causes(catalog, source.catalog_options, source.name):
            table = catalog.get_table(source.name)
        if not hasattr(table, "table_schema"):
            return None
        return call(source, table.copy(source.table_options) if source.table_options else table)


def tell_failures(failures: Mapping[str, Exception]) -> int:
    """Say of each table that could not be asked why, on stderr; the exit code for that, 0 without any."""
    for name, error in sorted(failures.items()):
        say(f"{name}: {' '.join(str(error).split()) or type(error).__name__}")
    if not failures:
        return 0
    passes = all(isinstance(error, PaimonStreamError) and error.retriable for error in failures.values())
    return TRY_AGAIN if passes else FAILED


def _check(option: str, text: str | None) -> None:
    try:
        re.compile(text or "")
    except re.error as error:
        raise click.UsageError(f"{option} {text!r}: no regular expression: {error}") from error
