"""`StreamLog`: log lines with a text for people and the same facts as fields for machines (`record.paimon`)."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Literal

from pypaimon.streaming.paimon.handles import ReadableTable
from pypaimon.streaming.redaction import without_secrets

FIELDS = "paimon"
"""The attribute of a log record that holds the fields: a dict of plain values, `event` among them."""

Field = str | int | float | bool | None
Event = Literal[
    "start",
    "start_raised",
    "start_lost",
    "start_damaged",
    "waiting",
    "resume",
    "plan",
    "passed_over",
    "overwrite_passed_over",
    "catch_up",
    "schema_followed",
    "position_expired",
    "state_restarted",
    "end",
    "consumer_opened",
    "consumer_saved",
    "consumer_fenced",
    "consumer_deleted",
    "retry",
    "store_client",
    "store_client_left",
    "store_unconditional",
    "prefetch_failed",
    "file_skipped",
    "index_unused",
    "saved_rows_unused",
    "rows_not_saved",
    "merge_staged",
    "row_kinds_hidden",
    "lag_unknown",
    "waits_out",
    "handler_failed",
    "dead_letter",
    "query_lag",
    "sink_files_kept",
    "compacting_writer",
    "partition_not_compacted",
    "compaction_options_ignored",
    "maintained",
    "rolled_back",
    "fast_forwarded",
    "branch_deleted",
    "maintenance_failed",
    "partitions_untimed",
    "partitions_in_metastore",
    "done_marks_left_out",
    "table_parked",
    "discovery_failed",
    "compaction_left_out",
    "commit_user_kept",
    "rows_uncommitted",
    "indexes_not_written",
    "orc_time_zone",
    "upkeep_left_out",
    "group_assigned",
    "group_lost",
    "group_waits_for_commit",
]
"""Events of log lines; docs/operations.md lists the level, the occasion and the fields of each."""


class Outages:
    """Limits warnings to one a minute and outage, however many readers of this process retry.

    Args:
        clock: Returns monotonic seconds.
    """

    _PAUSE = 60.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Without a lock: two threads that fail at the same moment may both warn.
        self._warned: dict[str, float] = {}

    def is_due(self, what: str) -> bool:
        """Whether a WARNING is due for an outage; the caller must write it then.

        Args:
            what: The failing component, such as a bucket.
        """
        now = self._clock()
        if now - self._warned.get(what, -math.inf) < self._PAUSE:
            return False
        self._warned[what] = now
        return True


outages = Outages()
"""The outages of this process."""


class StreamLog:
    """A logger of the standard library whose lines have fields.

    The fields of a line are part of its text, and also in the dict `record.paimon` for JSON formatters. They hold ids,
    names, counts and paths, but no options, rows or credentials (`without_secrets`).

    Args:
        name: Name of the logger: that of the module.
        fields: Fields of all lines. If `table` is among them, each text begins with it.
    """

    __slots__ = ("_fields", "_logger")

    def __init__(self, name: str, **fields: Field) -> None:
        self._logger = logging.getLogger(name)
        self._fields = fields

    @staticmethod
    def of(name: str, table: ReadableTable) -> StreamLog:
        """The log of a module for one of pypaimon's tables."""
        return StreamLog(name, table=table.identifier.get_full_name())

    def debug(self, event: Event, message: str, **fields: Field) -> None:
        """Write a line for debugging a stream.

        Args:
            event: The event.
            message: The text, with `%(name)s` for fields.
            fields: Fields of this line.
        """
        self._write(logging.DEBUG, event, message, fields)

    def info(self, event: Event, message: str, **fields: Field) -> None:
        """Write a line about normal operation; arguments as for `debug`."""
        self._write(logging.INFO, event, message, fields)

    def warning(self, event: Event, message: str, **fields: Field) -> None:
        """Write a line that may require action; arguments as for `debug`."""
        self._write(logging.WARNING, event, message, fields)

    def outage(self, event: Event, message: str, what: str, **fields: Field) -> None:
        """Write a line about a failure that is retried: a WARNING once a minute and outage, otherwise DEBUG.

        Args:
            event: The event.
            message: The text, with `%(name)s` for fields.
            what: The failing component, such as a bucket; see `errors.what_fails`.
            fields: Fields of this line.
        """
        self._write(logging.WARNING if outages.is_due(what) else logging.DEBUG, event, message, fields)

    def _write(self, level: int, event: Event, message: str, fields: dict[str, Field]) -> None:
        if not self._logger.isEnabledFor(level):
            return
        given = {"event": event, **self._fields, **fields}
        shown = {name: without_secrets(value) if isinstance(value, str) else value for name, value in given.items()}
        text = f"%(table)s: {message}" if "table" in shown else message
        # A mapping as the only argument supplies the values of `%(name)s`, so that all such lines share one template.
        self._logger.log(level, text, shown, extra={FIELDS: shown}, stacklevel=3)
