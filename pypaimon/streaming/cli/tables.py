"""Which table a command is about: the argument TABLE and the options that make a catalog."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import yaml
from pypaimon.catalog.catalog_factory import CatalogFactory

from pypaimon.streaming.batches.run_forever import Patience
from pypaimon.streaming.builder.builder import StreamReadBuilder
from pypaimon.streaming.cli.causes import naming_causes
from pypaimon.streaming.cli.contact import reach, telling_what_hangs
from pypaimon.streaming.cli.global_options import catalog_options, given, log_options
from pypaimon.streaming.cli.secrets import keep_secret, say
from pypaimon.streaming.cli.table_options import refuse_unknown
from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.metadata.table_directory import naming_unreadable_types
from pypaimon.streaming.options.views import VIEWS, View

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
_DEFAULT_CONFIG = Path("paimon.yaml")


@dataclass(frozen=True)
class TableSource:
    """A table by name, and how to get to it.

    Attributes:
        name: `db.table`, also with `$branch_<name>`.
        view: A view of it that the name asked for, `db.table$audit_log`.
        catalog_options: Options of pypaimon's catalog.
        table_options: Dynamic options of the table.
        connect_timeout: Seconds until the table must have been found.
        patient: Whether errors that may pass are waited out.
    """

    name: str
    view: View | None
    catalog_options: dict[str, str]
    table_options: dict[str, str]
    connect_timeout: float = 30.0
    patient: bool = False

    def load(self, retry: bool = False) -> Any:
        """pypaimon's table, as a handle of its own that has cached nothing yet.

        Args:
            retry: Whether to wait out errors that may pass.

        Raises:
            NotLoadedError: It is not there, or may not be read; says what is missing, or who refuses.
            StoreError: The store fails, or does not answer in time.
            UnsupportedTableError: It has columns of a type that pypaimon cannot parse.
        """
        retry = retry or self.patient
        load = partial(reach, self.catalog_options, self.connect_timeout, self._load, patiently=retry)
        table = patiently(load) if retry else load()
        return table.copy(self.table_options) if self.table_options else table

    def catalog(self) -> Any:
        """pypaimon's catalog."""
        return CatalogFactory.create(self.catalog_options)

    def _load(self) -> Any:
        catalog = self.catalog()
        with naming_unreadable_types("the table"), naming_causes(catalog, self.catalog_options, self.name):
            return catalog.get_table(self.name)

    def builder(self, table: Any | None = None) -> StreamReadBuilder:
        """A builder of streams of the table, or of the view."""
        return StreamReadBuilder(self.load() if table is None else table, self.view)


def on_table(command: F, metavar: str = "TABLE") -> F:
    """Give a command the argument TABLE and the options of its catalog; the function is called with a `TableSource`."""

    @functools.wraps(command)
    def with_source(*args: Any, table: str, **kwargs: Any) -> Any:
        found = given(click.get_current_context())
        options = _catalog_options(
            found.get("warehouse"), pairs(found.get("catalog_option", ()), "--catalog-option"), found.get("config")
        )
        name, view = _split_view(table)
        table_options = pairs(found.get("table_option", ()), "--table-option")
        refuse_unknown(table_options)
        timeout = found.get("connect_timeout", TableSource.connect_timeout)
        with telling_what_hangs(options):
            return command(TableSource(name, view, options, table_options, timeout), *args, **kwargs)

    wrapped: Any = log_options(catalog_options(with_source))
    return cast(F, click.argument("table", metavar=metavar)(wrapped))


def retry_option(command: F) -> F:
    """Give a command that only reads `--retry`: all of it is done again after errors that may pass."""

    @functools.wraps(command)
    def with_patience(source: TableSource, *args: Any, retry: bool, **kwargs: Any) -> Any:
        if not retry:
            return command(source, *args, **kwargs)
        return patiently(partial(command, replace(source, patient=True), *args, **kwargs))

    option = click.option("--retry", is_flag=True, help="Wait out errors that may pass, for as long as they last.")
    return cast(F, option(cast(Any, with_patience)))


def patiently(call: Callable[[], T]) -> T:
    """The result of a call, which is made again, after pauses that grow, while what it raises may pass."""
    pauses = Patience().pauses()
    while True:
        try:
            return call()
        except PaimonStreamError as error:
            if not error.retriable:
                raise
            say(f"{error}; trying again after a pause")
        time.sleep(next(pauses))


def _split_view(name: str) -> tuple[str, View | None]:
    if "." not in name:
        raise click.UsageError(f"{name!r} names no database: give TABLE as database.table")
    head, _, tail = name.rpartition("$")
    return (head, tail) if head and tail in VIEWS else (name, None)


def _catalog_options(warehouse: str | None, given: dict[str, str], config: Path | None) -> dict[str, str]:
    options: dict[str, str] = {}
    if config is None and warehouse is None and not given and _DEFAULT_CONFIG.is_file():
        config = _DEFAULT_CONFIG
    if config is not None:
        options |= _read_config(config)
    options |= given
    if warehouse is not None:
        options["warehouse"] = warehouse
    keep_secret(options)
    if not options:
        raise click.UsageError(
            "no catalog: give --warehouse (or set PAIMON_STREAM_WAREHOUSE), --catalog-option or --config, or write a "
            "paimon.yaml"
        )
    return options


def _read_config(path: Path) -> dict[str, str]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise click.UsageError(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict) or any(isinstance(value, (dict, list)) for value in content.values()):
        raise click.UsageError(f"{path}: expected lines of 'option: value'")
    return {str(key): _text(value) for key, value in content.items()}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    """`KEY=VALUE`s as a mapping; raises click.UsageError if one is none."""
    found = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise click.UsageError(f"{option} {text!r}: give KEY=VALUE")
        found[key] = value
    return found
