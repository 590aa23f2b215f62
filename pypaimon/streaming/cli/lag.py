"""`paimon-stream lag`: the lag of each consumer of a table."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import click
from rich.live import Live

from pypaimon.streaming.cli.messages import say, text_of
from pypaimon.streaming.cli.options import grouped
from pypaimon.streaming.cli.output import Record, console, format_option, show, span, table_of, to_json
from pypaimon.streaming.cli.tables import TableSource, duration, on_view, retry_option
from pypaimon.streaming.cli.tables_of_pattern import TableChoice, TablesOfPattern, say_failures
from pypaimon.streaming.consumers.consumer_manager import (
    AHEAD,
    ROLLED_BACK,
    ConsumerInfo,
    list_consumers,
    lost_state,
    snapshots_read,
)
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.paimon.handles import ReadableTable
from pypaimon.streaming.scanning.lag import Lag
from pypaimon.streaming.scanning.scan import StreamScan

ALL = "(all)"
FAILED, NO_CONSUMER = "failed", "no such consumer"
_NUMBERS = ("snapshots", "rows", "seconds", "next_snapshot", "earliest", "latest", "last_save")
ABOVE = 3
_LOST = ("expired", AHEAD, ROLLED_BACK)
"""States of consumers that no reader can continue from."""
_COLUMNS = ("consumer", "state", "snapshots", "rows", "seconds", "next_snapshot", "latest", "last_save")
_STYLES = {
    FAILED: "red",
    NO_CONSUMER: "red",
    **dict.fromkeys(_LOST, "red"),
    "behind": "yellow",
    "in its first plan": "yellow",
}


@click.command(
    epilog="""\b
Examples:
  paimon-stream lag db.orders
  paimon-stream lag db.orders etl --watch=5
  paimon-stream lag db.orders --max-lag 5m || page-someone
  paimon-stream lag db.orders --max-lag 100 --format json
  paimon-stream lag 'db.*' etl --max-lag 5m

\b
Exit codes: 3 if a consumer is above --max-lag, has expired, was rolled back, or its lag is unknown, or if there is no
consumer to hold to --max-lag; 1 if an ID is not there.
"""
)
@on_view
@grouped("choice", TableChoice)
@click.argument("consumer_ids", metavar="[ID]...", nargs=-1)
@click.option(
    "--max-lag", metavar="LIMIT", help="Snapshots (100), or the age of the oldest unread one (90s, 5m, 2h, 1d)."
)
@click.option(
    "--watch",
    metavar="[SECONDS]",
    is_flag=False,
    flag_value=2.0,
    type=click.FloatRange(min=0.1),
    help="Repeat the output. [default: every 2 s]",
)
@format_option
@retry_option
def lag(
    source: TableSource,
    choice: TableChoice,
    consumer_ids: Sequence[str],
    max_lag: str | None,
    watch: float | None,
    form: str,
) -> int:
    """Show the lag of each consumer of TABLE, or of each ID: in snapshots, in rows, and in time.

    `seconds` is the age of the first unread snapshot, 0 when caught up. Unknown values are "unknown", null in JSON. A
    consumer is "rolled back" if the table was rolled back to before its progress. Each shard and member of an id has a
    line of its own.

    'db.orders_*' stands for the tables that it matches: the greatest lag comes first, after a line for all tables. The
    lag of a table that cannot be read, or lacks consumer ID, is unknown.
    """
    limit = None if max_lag is None else Limit.parse(max_lag)
    pattern = TablesOfPattern.of(source, choice)
    if pattern is not None:
        return _lag_of_tables(pattern, consumer_ids, limit, watch, form)
    table = source.load()
    with source.builder(table).with_raw(True).new_streaming_scan() as scan:

        def measure() -> list[Record]:
            return [_record(table, info, scan) for info in _progress_files(table, consumer_ids)]

        if watch is None:
            records = measure()
            show(records, _COLUMNS, form, f"{source.name} has no consumers")
            return _judge(records, limit)
        return _watch(measure, _COLUMNS, watch, form, limit)


def _lag_of_tables(
    pattern: TablesOfPattern, consumer_ids: Sequence[str], limit: Limit | None, watch: float | None, form: str
) -> int:
    def of_table(source: TableSource, table: ReadableTable) -> list[Record]:
        files = _progress_files(table, ())
        if not files:
            return []
        with source.builder(table).with_raw(True).new_streaming_scan() as scan:
            return [_record(table, info, scan) for info in files]

    columns = ("table", *_COLUMNS)
    measured = LagOfTables(pattern, consumer_ids, of_table)
    if watch is not None:
        return _watch(measured.records, columns, watch, form, limit)
    records = measured.records()
    show(records, columns, form, f"no table of {pattern.text} has consumers")
    if limit is None:
        return say_failures(measured.failures)
    return _judge([record for record in records if record["table"] != ALL], limit)


@dataclass(frozen=True, slots=True)
class Limit:
    text: str
    snapshots: int | None
    age: timedelta | None

    @staticmethod
    def parse(text: str) -> Limit:
        """Parse `100` or `5m`; raises `click.UsageError` for anything else."""
        age = duration(text)
        if age is None and not text.isdecimal():
            raise click.UsageError(f"--max-lag {text!r}: give a number of snapshots, or a time as 90s, 5m, 2h, 1d")
        return Limit(text, int(text) if age is None else None, age)

    def complaint(self, record: Record) -> str | None:
        state, key = record["state"], "snapshots" if self.age is None else "seconds"
        value: Any = record[key]
        name = f"consumer {record['consumer']}" + (f" of {record['table']}" if "table" in record else "")
        if state == FAILED:
            return f"{record['table']} cannot be read: {record['error']}"
        if state == NO_CONSUMER:
            return f"there is no {name}"
        if state in _LOST:
            return f"{name} is {state}"
        if value is None:
            return f"the lag of {name} is unknown"
        if value > (self.snapshots if self.age is None else self.age.total_seconds()):
            count = "1 snapshot" if value == 1 else f"{value} snapshots"
            shown = count if self.age is None else span(value)
            return f"{name} is {shown} behind, more than {self.text}"
        return None


def _progress_files(table: ReadableTable, consumer_ids: Sequence[str]) -> list[ConsumerInfo]:
    infos = list_consumers(table)
    missing = set(consumer_ids) - {info.consumer_id for info in infos}
    if missing:
        known = ", ".join(sorted({info.consumer_id for info in infos})) or "none"
        raise click.ClickException(f"there is no consumer {', '.join(sorted(missing))}; there is: {known}")
    saved = {info.name for info in infos if not info.name.is_pin}
    return [
        info
        for info in infos
        if not (info.name.is_pin and info.name.progress in saved)
        and (not consumer_ids or info.consumer_id in consumer_ids)
    ]


def _record(table: ReadableTable, info: ConsumerInfo, scan: StreamScan) -> Record:
    scan.restore(info.next_snapshot or 1)
    lag = scan.lag()
    if not info.next_snapshot and (lag.earliest or 1) > 1:
        # It has read nothing, and begins at the earliest snapshot.
        scan.restore(lag.earliest)
        lag = scan.lag()
    state = _state(table, info, lag)
    known = state not in _LOST
    return {
        "consumer": info.name.progress.text,
        "id": info.consumer_id,
        "state": state,
        "snapshots": lag.snapshots if known else None,
        "rows": lag.rows if known else None,
        "seconds": lag.seconds if known else None,
        "next_snapshot": info.next_snapshot,
        "earliest": lag.earliest,
        "latest": lag.latest,
        "last_save": info.last_save,
    }


def _state(table: ReadableTable, info: ConsumerInfo, lag: Lag) -> str:
    lost = lost_state(info, lag.latest, snapshots_read(TableDirectory.of(table)))
    if lost is not None:
        return lost
    if lag.earliest is not None and 0 < info.next_snapshot < lag.earliest:
        return "expired"
    if info.position.is_inside:
        return "in its first plan"
    return "behind" if lag.snapshots else "caught up"


def _judge(records: Sequence[Record], limit: Limit | None) -> int:
    if limit is None:
        return 0
    complaints = [text for record in records if (text := limit.complaint(record))]
    if not records:
        complaints = [f"there are no consumers to compare with --max-lag {limit.text}"]
    for text in complaints:
        say(text)
    return ABOVE if complaints else 0


def _watch(
    measure: Callable[[], list[Record]], columns: Sequence[str], seconds: float, form: str, limit: Limit | None
) -> int:
    stdout = console()
    with Live(console=stdout, auto_refresh=False) as live:
        while True:
            records = measure()
            if form == "json":
                sys.stdout.writelines(to_json(record) + "\n" for record in records)
                sys.stdout.flush()
            elif stdout.is_terminal:
                styled = [{**record, "style": _STYLES.get(str(record["state"]), "green")} for record in records]
                live.update(table_of(styled, columns), refresh=True)
            else:
                stdout.print(table_of(records, columns))
            if code := _judge([record for record in records if record.get("table") != ALL], limit):
                return code
            time.sleep(seconds)


class LagOfTables:
    """Measures the lag of the consumers of several tables.

    Args:
        consumer_ids: Only these consumers; a table without one of them gets a line that says so. Empty for all.
    """

    def __init__(
        self, pattern: TablesOfPattern, consumer_ids: Sequence[str], measure: Callable[[TableSource, Any], list[Record]]
    ) -> None:
        self._pattern = pattern
        self._ids = consumer_ids
        self._measure = measure
        self.failures: dict[str, Exception] = {}

    def records(self) -> list[Record]:
        found: list[Record] = []
        self.failures = {}
        for name, answer in self._pattern.ask_each(self._measure).items():
            if isinstance(answer, Exception):
                self.failures[name] = answer
                found.append(_unknown(name, "", FAILED) | {"error": text_of(answer, of_tables=True)})
                continue
            of_ids = [record for record in answer if not self._ids or record["id"] in self._ids]
            missing = set(self._ids) - {record["id"] for record in of_ids}
            found += [_unknown(name, each, NO_CONSUMER) for each in sorted(missing)]
            found += [{"table": name, **record} for record in of_ids]
        found.sort(key=_order)
        return [_of_all(found), *found] if found else []


def _unknown(table: str, consumer: str, state: str) -> dict[str, Any]:
    return {"table": table, "consumer": consumer, "id": consumer, "state": state, **dict.fromkeys(_NUMBERS)}


def _order(record: Record) -> tuple[Any, ...]:
    snapshots, seconds = record["snapshots"], record["seconds"]
    unknown = snapshots is None, seconds is None
    numbers = [-value if isinstance(value, (int, float)) else 0 for value in (seconds, snapshots)]
    return not any(unknown), *numbers, record["table"], record["consumer"]


def _of_all(records: Sequence[Record]) -> Record:
    """The sums, and the greatest age; unknown if the value of any table is unknown."""
    return {
        **_unknown(ALL, "", str(records[0]["state"])),
        "snapshots": _together(sum, (record["snapshots"] for record in records)),
        "rows": _together(sum, (record["rows"] for record in records)),
        "seconds": _together(max, (record["seconds"] for record in records)),
    }


def _together(function: Callable[[list[Any]], Any], values: Iterable[Any]) -> Any:
    found = list(values)
    return None if None in found else function(found)
