"""The table of a command, the options for its catalog, and where a stream of it starts."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import click
import yaml

from pypaimon.streaming.catalog_access import CONNECT_SECONDS, naming_causes, open_catalog, reach, table_of
from pypaimon.streaming.cli.connectivity import reporting_hangs
from pypaimon.streaming.cli.messages import keep_secret, say, text_of
from pypaimon.streaming.cli.options import Retrying, catalog_options, given, grouped, log_options, option
from pypaimon.streaming.concurrency.backoff import Backoff
from pypaimon.streaming.errors import NoDatabaseError, PaimonStreamError
from pypaimon.streaming.filtering.filter_text import parse_filter
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.time_zone import TimeZone, zone_of_table
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.arguments import did_you_mean, nearest
from pypaimon.streaming.options.known_options import accepted_names
from pypaimon.streaming.options.read_scope import VIEWS, View
from pypaimon.streaming.options.start import NAMED_STARTS
from pypaimon.streaming.options.stream_options import CommitMode
from pypaimon.streaming.paimon.handles import ReadableTable, WritableTable
from pypaimon.streaming.read_builder import StreamReadBuilder

if TYPE_CHECKING:
    from pypaimon.streaming.paimon.filter_internals import Predicate

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True)
class ReadSettings:
    start: str | None = option(
        "--start",
        metavar="WHERE",
        help=f"{', '.join(NAMED_STARTS)}; a snapshot id or tag:NAME (full:ID, full:tag:NAME: its state first); "
        "a time (2026-11-21T10:00, in the table's time zone without one) or how long ago (90s, 10m, 2h, 1d), also as "
        "creation-time:TIME and file-creation-time:TIME; or position:JSON. "
        "[default: the table's options, else latest-full]",
    )
    filter_text: str | None = option("--filter", metavar="SQL", help="Rows that match: \"status = 'paid' AND v > 3\".")
    columns: str | None = option("--columns", metavar="A,B", help="Only these columns; fields of rows as row.field.")
    consumer_id: str | None = option("--consumer-id", metavar="ID", help="Start where this consumer has stopped.")


def configure(
    builder: StreamReadBuilder,
    start: str | None,
    filter_text: str | None,
    columns: str | None,
    unmatched: Literal["delete", "drop"] = "delete",
) -> StreamReadBuilder:
    """Apply the options to a builder."""
    if start is not None:
        builder.with_start(**start_of(start, zone_of_table(builder.table)))
    if filter_text is not None:
        builder.with_filter(filter_text, unmatched)
    if columns is not None:
        builder.with_projection([name.strip() for name in columns.split(",")])
    return builder


def filter_of(builder: StreamReadBuilder, filter_text: str | None) -> Predicate | None:
    return None if filter_text is None else parse_filter(filter_text, builder.copy().with_projection(None).read_type())


def save_progress(builder: StreamReadBuilder, consumer_id: str | None) -> StreamReadBuilder:
    """Read under a consumer id: printed rows are confirmed when the next plan is asked for."""
    return builder if consumer_id is None else builder.with_consumer_id(consumer_id, commit=CommitMode.AUTO.value)


def start_of(text: str, zone: TimeZone, now: datetime | None = None) -> dict[str, Any]:
    """The value of `--start` as arguments of `with_start`.

    Args:
        now: The present time (aware); None for the machine's clock.
    """
    if text in NAMED_STARTS:
        return {"mode": text}
    full = {"full": True} if text.startswith("full:") else {}
    place = text.removeprefix("full:")
    if place.isdecimal():
        return {"snapshot_id": int(place), **full}
    if place.startswith("tag:"):
        return {"tag": place.removeprefix("tag:"), **full}
    if text.startswith("position:"):
        return {"position": text.removeprefix("position:")}
    kind, _, moment = text.partition("-time:")
    argument, moment = _TIMES.get(kind, "timestamp"), moment if kind in _TIMES else text
    try:
        if (ago := duration(moment)) is not None:
            return {argument: (now or zone.now()) - ago}
        return {argument: zone.moment(datetime.fromisoformat(moment.replace("Z", "+00:00")))}
    except (ValueError, OverflowError):
        raise click.UsageError(
            f"--start {text!r}: give {', '.join(NAMED_STARTS)}, a snapshot id, tag:NAME, a time as 2026-11-21T10:00, "
            "or how long ago as 10m; --help has the others"
        ) from None


_TIMES = {"creation": "creation_time", "file-creation": "file_creation_time"}
"""The arguments of `with_start` by the word before `-time:`."""


def duration(text: str) -> timedelta | None:
    """`90s`, `10m`, `2h`, `1d` as a span of time; None for any other text, and for more than a million years."""
    match = _DURATION.fullmatch(text)
    try:
        return None if match is None else timedelta(**{_UNITS[match[2]]: float(match[1])})
    except OverflowError:
        return None


T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
_COMPLETION_SECONDS = 3.0
_DEFAULT_CONFIG = Path("paimon.yaml")
_FAMILIES = ("fields.", "file-index.", "fs.")
_KNOWN = accepted_names()
"""Keys that `--table-option` takes. A misspelled key would be ignored without a word."""


@dataclass(frozen=True)
class TableSource:
    """A table by name, and the options of its catalog.

    Attributes:
        connect_timeout: Seconds within which the table must be found.
    """

    name: str
    view: View | None
    catalog_options: dict[str, str]
    table_options: dict[str, str]
    connect_timeout: float = CONNECT_SECONDS
    patient: bool = False

    def load(self, retry: bool = False) -> WritableTable:
        """pypaimon's table, as a new handle with empty caches.

        Raises:
            OpenTableError: The table is missing, or may not be read.
            StoreError: The store failed, or did not answer in time.
        """
        retry = retry or self.patient
        load = partial(reach, self.catalog_options, self.connect_timeout, self._load, retry, say)
        table = patiently(load) if retry else load()
        return table.copy(self.table_options) if self.table_options else table

    def catalog(self) -> Any:
        return open_catalog(self.catalog_options)

    def _load(self) -> WritableTable:
        return table_of(self.catalog(), self.catalog_options, self.name)

    def builder(self, table: ReadableTable | None = None) -> StreamReadBuilder:
        return StreamReadBuilder(self.load() if table is None else table, self.view)


def on_table(command: F, metavar: str = "TABLE", views: bool = False) -> F:
    """Give a command the argument TABLE and the options of its catalog; the function is called with a `TableSource`.

    Args:
        views: Whether TABLE may be a view, such as `db.orders$audit_log`.
    """

    @functools.wraps(command)
    def with_source(*args: Any, table: str, **kwargs: Any) -> Any:
        found = given(click.get_current_context())
        options = _given_catalog(found)
        name, view = _split_view(table)
        if view is not None and not views:
            command_path = click.get_current_context().command_path
            raise click.UsageError(f"{command_path} takes no view: give {metavar} without '${view}'")
        table_options = pairs(found.get("table_option", ()), "--table-option")
        refuse_unknown(table_options)
        timeout = found.get("connect_timeout", TableSource.connect_timeout)
        with reporting_hangs(options):
            return command(TableSource(name, view, options, table_options, timeout), *args, **kwargs)

    wrapped: Any = log_options(catalog_options(with_source))
    return cast(F, click.argument("table", metavar=metavar, shell_complete=_known_tables)(wrapped))


on_view = partial(on_table, views=True)
"""As `on_table`, for a command that only reads."""


def names_of_tables(database: str | None = None) -> list[str]:
    """The sorted full names of the tables of a database, or of all of the catalog that the command names.

    Raises:
        NoDatabaseError: There is no such database.
        StoreError: The store failed, or did not answer in time.
    """
    found = given(click.get_current_context())
    seconds = found.get("connect_timeout", TableSource.connect_timeout)
    return _names(_given_catalog(found), seconds, lambda name: database in (None, name), database)


def _names(
    options: dict[str, str], seconds: float, wanted: Callable[[str], bool], database: str | None = None
) -> list[str]:
    def names() -> list[str]:
        catalog = open_catalog(options)
        with naming_causes(options, "the catalog", catalog):
            known = catalog.list_databases()
            if database is not None and database not in known:
                hint = did_you_mean(nearest(database, known))
                raise NoDatabaseError(f"There is no database '{database}' in this catalog.{hint}")
            return sorted(f"{each}.{name}" for each in known if wanted(each) for name in catalog.list_tables(each))

    return reach(options, seconds, names)


def _known_tables(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The tables that a word may become. Nothing without an answer: an error would be shown in the command's line."""
    database, dot, _ = incomplete.partition(".")

    def wanted(name: str) -> bool:
        return name == database if dot else name.startswith(database)

    try:
        names = _names(_given_catalog(given(context)), _COMPLETION_SECONDS, wanted)
    except Exception:  # noqa: BLE001
        return []
    return [name for name in names if name.startswith(incomplete)]


def retry_option(command: F) -> F:
    """Give a command that only reads `--retry`: the whole command is repeated after errors that may pass."""

    @functools.wraps(command)
    def with_patience(source: TableSource, *args: Any, retrying: Retrying, **kwargs: Any) -> Any:
        if not retrying.retry:
            return command(source, *args, **kwargs)
        return patiently(partial(command, replace(source, patient=True), *args, **kwargs))

    return cast(F, grouped("retrying", Retrying)(with_patience))


def patiently(call: Callable[[], T]) -> T:
    """The result of a call, which is repeated, after growing pauses, as long as it raises errors that may pass."""
    tries = Backoff().tries()
    while True:
        next(tries)
        try:
            return call()
        except PaimonStreamError as error:
            if not error.retriable:
                raise
            say(f"{text_of(error)}; trying again after a pause")


def refuse_without(other: str, values: Mapping[str, object]) -> None:
    """Refuse options that mean something only with another one, which is not given.

    Args:
        other: The other option.
        values: By the names of the options; None, False and () were not given.

    Raises:
        click.UsageError: Names the first that is given.
    """
    for name, value in values.items():
        if value is not None and value is not False and value != ():
            raise click.UsageError(f"{name} goes with {other}")


def _split_view(name: str) -> tuple[str, View | None]:
    if "." not in name:
        raise click.UsageError(f"{name!r} names no database: give TABLE as database.table")
    head, _, tail = name.rpartition("$")
    return (head, tail) if head and tail in VIEWS else (name, None)


def _given_catalog(found: Mapping[str, Any]) -> dict[str, str]:
    return _catalog_options(
        found.get("warehouse"), pairs(found.get("catalog_option", ()), "--catalog-option"), found.get("config")
    )


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
        raise click.UsageError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict) or any(isinstance(value, (dict, list)) for value in content.values()):
        raise click.UsageError(f"{path}: expected lines of 'option: value'")
    return {str(key): _text(value) for key, value in content.items()}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def null_text(table: WritableTable) -> str:
    """How commands print the null of a partition, and take it."""
    return option_keys.PARTITION_DEFAULT_NAME.of(PaimonTable(table).options)


def pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    """`KEY=VALUE` texts as a mapping; raises click.UsageError for other texts."""
    found = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise click.UsageError(f"{option}: expected KEY=VALUE, got {text!r}")
        found[key] = value
    return found


def refuse_unknown(keys: Iterable[str]) -> None:
    for key in keys:
        if key not in _KNOWN and not key.startswith(_FAMILIES) and not _is_of_a_format(key):
            hint = did_you_mean(nearest(key, _KNOWN))
            raise click.UsageError(f"--table-option: there is no option '{key}'.{hint}")


def _is_of_a_format(key: str) -> bool:
    # Imported late, because the registry imports the readers of all formats.
    from pypaimon.streaming.formats.registry import FORMATS

    return key.startswith(tuple(f"{name}." for name in FORMATS))
