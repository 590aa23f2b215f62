"""`DatabasePosition`: where a stream of a database stands, table by table, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.position import Position

_VERSION = 1


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where the stream stands in one table.

    Attributes:
        identity: Tells the table from a later one of the same name, and finds it under another one.
        position: Behind the last batch that was handed out; None: before its start.
        was_empty: Whether it had no snapshot when it was looked at last: whatever comes is new.
    """

    identity: str
    position: Position | None = None
    was_empty: bool = False


@dataclass(frozen=True, slots=True)
class DatabasePosition:
    """Where a stream of a database stands. Immutable.

    Attributes:
        database: Its name.
        tables: The tables that are known, by name, those without a row too: what comes later is read from its
            beginning.
        location: Of a copy: which warehouse it is of; see `warehouse_of`. None: it is not noted.
    """

    database: str
    tables: Mapping[str, TablePlace] = field(default_factory=dict)
    location: str | None = None

    def to_json(self) -> str:
        """As text: some 200 bytes a table. The same position gives the same text."""
        tables = {
            name: {
                "identity": place.identity,
                "position": None if place.position is None else json.loads(place.position.to_json()),
                **({"empty": True} if place.was_empty else {}),
            }
            for name, place in sorted(self.tables.items())
        }
        return json.dumps({"version": _VERSION, "database": self.database, "tables": tables}, separators=(",", ":"))

    @staticmethod
    def from_json(text: str | bytes) -> DatabasePosition:
        """Read what `to_json` wrote.

        Raises:
            StreamConfigError: It is none, or of a newer version.
        """
        try:
            value = json.loads(text)
            version = value["version"]
            if version != _VERSION:
                raise StreamConfigError(
                    f"A position of version {version!r} of a database: this release reads version {_VERSION}. Use the "
                    "release that wrote it, or a newer one."
                )
            tables = {str(name): _place(each) for name, each in value["tables"].items()}
            return DatabasePosition(str(value["database"]), tables)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, StreamConfigError):
                raise
            raise StreamConfigError(f"This is no position of a database: {error!r}.") from error


def _place(value: Mapping[str, Any]) -> TablePlace:
    given = value["position"]
    position = None if given is None else Position.from_json(json.dumps(given))
    return TablePlace(str(value["identity"]), position, bool(value.get("empty", False)))
