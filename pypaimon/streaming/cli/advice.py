"""What to do about an error of the library, in terms of the program's options instead of the Python API."""

from __future__ import annotations

import re
from collections.abc import Mapping

import click

from pypaimon.streaming.errors import PaimonStreamError, PositionExpiredError, TablesFailedError

_FLAGS = {
    "on_new_column": "--on-new-column",
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
    "on_new_column": "Add it, or choose --on-new-column add, which adds it, or --on-new-column ignore, which leaves it "
    "out.",
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


def text_of(error: BaseException, *, of_tables: bool = False) -> str:
    """An error on one line, with advice that fits the command.

    Args:
        error: The error, of the library or of anything that it uses.
        of_tables: Whether the command is about several tables, and this error about one of them.
    """
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
    if isinstance(error, PositionExpiredError):
        return _after_expiry(error)
    if error.advice is None or error.option is None:
        return error.advice
    if of_tables and error.option in _OF_TABLES:
        return _OF_TABLES[error.option]
    return _ADVICE.get(error.option, error.advice)


def _after_expiry(error: PositionExpiredError) -> str:
    if error.earliest_needs_it:
        unreadable, keep = "earliest", "raise snapshot.time-retained."
    else:
        unreadable = None
        keep = (
            "raise snapshot.time-retained or changelog.time-retained, or read with --consumer-id, which protects "
            "unread snapshots."
        )
    choices = [each for each in _choices("on_expired") if each not in ("fail", unreadable)]
    if not choices:
        return f"To keep snapshots longer, {keep}"
    *others, last = choices
    listed = f"{', '.join(others)} or {last}" if others else last
    return f"Choose where to continue with --on-expired {listed}, or keep snapshots longer: {keep}"


def _choices(name: str) -> list[str]:
    """The values of an option of the command that runs; none if it lacks the option."""
    context = click.get_current_context(silent=True)
    command = context.command if context is not None else None
    if context is not None and isinstance(command, click.Group):
        command = command.get_command(context, context.invoked_subcommand or "")
    for parameter in () if command is None else command.params:
        if parameter.name == name and isinstance(parameter.type, click.Choice):
            return list(map(str, parameter.type.choices))
    return []
