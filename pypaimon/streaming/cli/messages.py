"""Messages on stderr, without secrets; errors of the library with advice in terms of the program's options."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import click

from pypaimon.streaming.errors import PaimonStreamError, PositionExpiredError, TablesFailedError
from pypaimon.streaming.redaction import HIDDEN, SECRET_KEY, without_secrets

_FLAGS = {
    "on_new_column": "--on-new-column",
    "orphan_age": "--orphans",
    "time_unit": "--time-unit",
    "time_zone": "--time-zone",
    "unavailable_value_placeholder": "--unavailable-value-placeholder",
    "with_blob_places": "--blob-place",
    "with_projection": "--columns",
    "with_row_kind_column": "--kind-column",
}
"""Options by the name of the method or argument that the message of an error begins with."""
_NAMED_FIRST = re.compile(r"(\w+)(?=:)")

_ADVICE = {
    "as_latest": "Give --as-latest, which commits its state again.",
    "discard_own_commits": "If that is intended, give --discard-own-commits.",
    "on_new_column": "Add it, or choose --on-new-column add, which adds it, or --on-new-column ignore, which leaves it "
    "out.",
    "orphan_age": "Give a day or more. If no writer is running, --young-orphans allows less.",
    "replace": "Give another TARGET, empty this one, or give --replace, so that the state of SOURCE replaces it.",
    "stream_read_builder: view": "For a view of one (audit_log, binlog, ro, row_tracking) add its name to the table's: "
    "'db.table$audit_log'.",
    "time_unit": "Send the schema with the records, or give --time-unit ms, us or ns.",
    "time_zone": "Give the zone of the clock with --time-zone.",
    "with_blob_places": "Name it with --blob-place if it is to be read.",
    "with_consumer_id": "Read the table with --consumer-id.",
    "with_filter": "Name the partitions, or remove the option and use --filter.",
    "with_filter: unmatched": "Use a changelog producer lookup or full-compaction, or accept that with "
    "--unmatched drop.",
    "with_on_schema_change": "Start the program again.",
    "with_start of a database": "Leave --start out.",
    "with_projection": "Leave such columns out with --columns.",
    "with_range": "Leave the option out.",
    "with_raw": None,
    "with_start": "Choose where to continue with --start, or with paimon-stream consumers reset.",
    "with_start: position": "Start the program again.",
    "with_start: tag": "Give the tag as --start tag:NAME.",
    "with_time_zone": "Name the zone of the JVM that wrote it with --table-option time-zone=ZONE.",
}
"""The program's advice by the option that the library's advice is about (`PaimonStreamError.option`)."""

_OF_TABLES: Mapping[str, str] = {
    "replace": "Drop the copy: the next run makes it again.",
    "with_projection": "Leave the table out with --exclude.",
}
"""The same for one of several tables, where the options for a single table cannot be given."""

_OF_COPIES = "Give --replace and another --commit-user, so that the state of SOURCE replaces the rows of TARGET."
"""The advice to start elsewhere for `copy`, whose start is what TARGET has saved under its commit user."""


def text_of(error: BaseException, *, of_tables: bool = False) -> str:
    """An error on one line, with advice that fits the command."""
    if isinstance(error, TablesFailedError):
        each = (f"{name}: {text_of(of_one, of_tables=True)}" for name, of_one in sorted(error.errors.items()))
        return f"{len(error.errors)} tables were not read to the end. {'; '.join(each)}"
    if not isinstance(error, PaimonStreamError):
        return " ".join(str(error).split()) or type(error).__name__
    message, advice = error.message, _advice(error, of_tables)
    named = _NAMED_FIRST.match(message)
    if named is not None and named[1] in _FLAGS:
        message = _FLAGS[named[1]] + message[named.end() :]
    text = " ".join(f"{message} {advice or ''}".split())
    return text or type(error).__name__


def _advice(error: PaimonStreamError, of_tables: bool) -> str | None:
    if isinstance(error, PositionExpiredError) and error.option is not None:
        return _after_expiry(error)
    if error.advice is None or error.option is None:
        return error.advice
    option = error.option
    if option == "with_start" and "replaces" in (options := _options()) and "start" not in options:
        return _OF_TABLES["replace"] if of_tables else _OF_COPIES
    if of_tables and option in _OF_TABLES:
        return _OF_TABLES[option]
    return _ADVICE.get(option, error.advice)


def _after_expiry(error: PositionExpiredError) -> str:
    if error.earliest_needs_it:
        unreadable, keep = "earliest", "raise snapshot.time-retained."
    else:
        unreadable = None
        keep = (
            "raise snapshot.time-retained or changelog.time-retained, or read with --consumer-id, which protects "
            "unread snapshots."
        )
    option = _options().get("on_expired")
    known = option.type.choices if option is not None and isinstance(option.type, click.Choice) else ()
    choices = [str(each) for each in known if each not in ("fail", unreadable)]
    if not choices:
        return f"To keep snapshots longer, {keep}"
    *others, last = choices
    listed = f"{', '.join(others)} or {last}" if others else last
    return f"Choose where to continue with --on-expired {listed}, or keep snapshots longer: {keep}"


def _options() -> dict[str, click.Parameter]:
    context = click.get_current_context(silent=True)
    command = context.command if context is not None else None
    if context is not None and isinstance(command, click.Group):
        command = command.get_command(context, context.invoked_subcommand or "")
    return {} if command is None else {str(each.name): each for each in command.params}


_LEAST_LENGTH = 8
"""Shorter values are hidden only in options and URIs, since they could be parts of ordinary words."""
_PUBLIC = re.compile(r".*access[-_.]?key(?:[-_.]?id)?", re.IGNORECASE)
"""Names of options that hold the id of a key, which is public."""
_known: set[str] = set()


def keep_secret(options: Mapping[str, str]) -> None:
    """Hide the secrets of a catalog's options from now on, even if a client or a database repeats them."""
    for key, value in options.items():
        is_secret = SECRET_KEY.fullmatch(key) and ("secret" in key.lower() or not _PUBLIC.fullmatch(key))
        found = [value] if is_secret else _passwords(value)
        _known.update(each for each in found if len(each) >= _LEAST_LENGTH)


def shown(text: str) -> str:
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return without_secrets(text)


def shown_value(value: Any, key: object = "") -> Any:
    """A value of a record without secrets: in its texts, at any depth, and under keys that name secrets."""
    if isinstance(value, str):
        return HIDDEN if SECRET_KEY.fullmatch(str(key)) else shown(value)
    if isinstance(value, Mapping):
        return {name: shown_value(each, name) for name, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        return [shown_value(each) for each in value]
    return value


def say(text: str) -> None:
    click.echo(shown(f"paimon-stream: {text}"), err=True)


class ShownLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return shown(super().format(record))


def _passwords(text: str) -> list[str]:
    try:
        password = urlsplit(text).password
    except ValueError:
        return []
    return [] if password is None else [password, unquote(password)]


def is_unicode() -> bool:
    return (sys.stdout.encoding or "ascii").lower().replace("-", "").startswith("utf")
