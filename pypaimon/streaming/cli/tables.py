"""Which table a command is about: the argument TABLE and the options that make a catalog."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import yaml
from pypaimon.catalog.catalog_factory import CatalogFactory

from pypaimon.streaming.builder.builder import StreamReadBuilder
from pypaimon.streaming.metadata.unreadable_types import naming_unreadable_types
from pypaimon.streaming.options.views import VIEWS, View

F = TypeVar("F", bound=Callable[..., Any])
_DEFAULT_CONFIG = Path("paimon.yaml")


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table by name, and how to get to it.

    Attributes:
        name: `db.table`, also with `$branch_<name>`.
        view: A view of it that the name asked for, `db.table$audit_log`.
        catalog_options: Options of pypaimon's catalog.
        table_options: Dynamic options of the table.
    """

    name: str
    view: View | None
    catalog_options: dict[str, str]
    table_options: dict[str, str]

    def load(self) -> Any:
        """pypaimon's table, as a handle of its own that has cached nothing yet."""
        with naming_unreadable_types("the table"):
            table = CatalogFactory.create(self.catalog_options).get_table(self.name)
        return table.copy(self.table_options) if self.table_options else table

    def builder(self, table: Any | None = None) -> StreamReadBuilder:
        """A builder of streams of the table, or of the view."""
        return StreamReadBuilder(self.load() if table is None else table, self.view)


def on_table(command: F) -> F:
    """Give a command the argument TABLE and the options of its catalog; the function is called with a `TableSource`."""

    @functools.wraps(command)
    def with_source(
        *args: Any,
        table: str,
        warehouse: str | None,
        catalog_option: tuple[str, ...],
        config: Path | None,
        table_option: tuple[str, ...],
        **kwargs: Any,
    ) -> Any:
        options = _catalog_options(warehouse, _pairs(catalog_option, "--catalog-option"), config)
        name, view = _split_view(table)
        source = TableSource(name, view, options, _pairs(table_option, "--table-option"))
        return command(source, *args, **kwargs)

    decorators = (
        click.argument("table", metavar="TABLE"),
        click.option(
            "--warehouse",
            "-w",
            metavar="PATH",
            envvar="PAIMON_STREAM_WAREHOUSE",
            help="Directory or URI of the warehouse. [env: PAIMON_STREAM_WAREHOUSE]",
        ),
        click.option("--catalog-option", "-o", metavar="KEY=VALUE", multiple=True, help="An option of the catalog."),
        click.option(
            "--config",
            "-c",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="YAML file with options of the catalog, the one of pypaimon's own program. [default: paimon.yaml]",
        ),
        click.option("--table-option", metavar="KEY=VALUE", multiple=True, help="A dynamic option of the table."),
    )
    wrapped: Any = with_source
    for decorate in reversed(decorators):
        wrapped = decorate(wrapped)
    return cast(F, wrapped)


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
    if not options:
        raise click.UsageError("no catalog: give --warehouse, --catalog-option or --config, or write a paimon.yaml")
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


def _pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise click.UsageError(f"{option} {text!r}: give KEY=VALUE")
        pairs[key] = value
    return pairs
