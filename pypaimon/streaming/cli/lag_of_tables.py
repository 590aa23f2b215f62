"""`paimon-stream lag 'db.*'`: the consumers of several tables, the worst first, and a line for all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pypaimon.streaming.cli.advice import text_of
from pypaimon.streaming.cli.output import Record
from pypaimon.streaming.cli.tables import TableSource
from pypaimon.streaming.cli.tables_of_pattern import TablesOfPattern

ALL = "(all)"
FAILED, NO_CONSUMER = "failed", "no such consumer"
_NUMBERS = ("snapshots", "rows", "seconds", "next_snapshot", "earliest", "latest", "last_save")


class LagOfTables:
    """Measures it.

    Args:
        pattern: Which tables.
        consumer_ids: Only these consumers; of a table without one of them a line says so. Empty: all that there are.
        measure: Gives the records of the consumers of one table.
    """

    def __init__(
        self,
        pattern: TablesOfPattern,
        consumer_ids: Sequence[str],
        measure: Callable[[TableSource, Any], list[Record]],
    ) -> None:
        self._pattern = pattern
        self._ids = consumer_ids
        self._measure = measure

    def records(self) -> list[Record]:
        """A record for each consumer of each table, the worst first, and before them one for all; none without any."""
        found: list[Record] = []
        for name, answer in self._pattern.ask_each(self._measure).items():
            if isinstance(answer, Exception):
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
    """The worst first: what is unknown, then what is furthest behind; else by name."""
    snapshots, seconds = record["snapshots"], record["seconds"]
    unknown = snapshots is None, seconds is None
    numbers = [-value if isinstance(value, (int, float)) else 0 for value in (seconds, snapshots)]
    return not any(unknown), *numbers, record["table"], record["consumer"]


def _of_all(records: Sequence[Record]) -> Record:
    """The sums, and the age of the oldest; unknown where that of any table is."""
    return {
        **_unknown(ALL, "", str(records[0]["state"])),
        "snapshots": _together(sum, (record["snapshots"] for record in records)),
        "rows": _together(sum, (record["rows"] for record in records)),
        "seconds": _together(max, (record["seconds"] for record in records)),
    }


def _together(function: Callable[[list[Any]], Any], values: Iterable[Any]) -> Any:
    found = list(values)
    return None if None in found else function(found)
