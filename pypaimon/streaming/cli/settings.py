"""Settings of a stream on the command line: where it starts, what it keeps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import click

from pypaimon.streaming.cli.options import option
from pypaimon.streaming.filtering.filter_text import parse_filter
from pypaimon.streaming.model.time_zone import TimeZone, zone_of_table
from pypaimon.streaming.options.start import NAMED_STARTS
from pypaimon.streaming.options.stream_options import CommitMode
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
        help=f"{', '.join(NAMED_STARTS)}; a snapshot id; tag:NAME; "
        "a time (2026-11-21T10:00, in the table's time zone without one); or how long ago (90s, 10m, 2h, 1d). "
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
    if text.isdecimal():
        return {"snapshot_id": int(text)}
    if text.startswith("tag:"):
        return {"tag": text[len("tag:") :]}
    try:
        if (ago := duration(text)) is not None:
            return {"timestamp": (now or zone.now()) - ago}
        return {"timestamp": zone.moment(datetime.fromisoformat(text.replace("Z", "+00:00")))}
    except (ValueError, OverflowError):
        raise click.UsageError(
            f"--start {text!r}: give {', '.join(NAMED_STARTS)}, a snapshot id, tag:NAME, a time as 2026-11-21T10:00, "
            "or how long ago as 10m"
        ) from None


def duration(text: str) -> timedelta | None:
    """`90s`, `10m`, `2h`, `1d` as a span of time; None for any other text, and for more than a million years."""
    match = _DURATION.fullmatch(text)
    try:
        return None if match is None else timedelta(**{_UNITS[match[2]]: float(match[1])})
    except OverflowError:
        return None
