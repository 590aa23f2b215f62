"""`DatabasePosition`: the position of a stream of a database, table by table, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.position import Position

_VERSION = 1


@dataclass(frozen=True, slots=True)
class TablePosition:
    """The position in one table.

    Attributes:
        identity: Distinguishes the table from a later one of the same name, and finds it under a new name.
        position: After the last batch that was handed out; None before the start.
        was_empty: Whether the last poll found no snapshot, so that every later row is new.
    """

    identity: str
    position: Position | None = None
    was_empty: bool = False


@dataclass(frozen=True, slots=True)
class DatabasePosition:
    """The position of a stream of a database. Immutable.

    Attributes:
        database: Name of the database.
        tables: The known tables by name, including those without rows. Tables that are not here are read from their
            first row.
        location: The warehouse that a copy was made from, if it is recorded; see `warehouse_of`.
    """

    database: str
    tables: Mapping[str, TablePosition] = field(default_factory=dict)
    location: str | None = None

    def to_json(self) -> str:
        """As text, about 200 bytes a table. Equal positions give equal texts."""
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
            StreamConfigError: The text is not a position of a database, or is of a newer version.
        """
        try:
            value = json.loads(text)
            version = value["version"]
            if version != _VERSION:
                raise StreamConfigError(
                    f"The position of the database has version {version!r}, but this release reads version {_VERSION}. "
                    "Use the release that wrote it, or a newer one."
                )
            tables = {str(name): _place(each) for name, each in value["tables"].items()}
            return DatabasePosition(str(value["database"]), tables)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, StreamConfigError):
                raise
            raise StreamConfigError(f"Invalid position of a database: {error!r}.") from error


def _place(value: Mapping[str, Any]) -> TablePosition:
    given = value["position"]
    position = None if given is None else Position.from_json(json.dumps(given))
    return TablePosition(str(value["identity"]), position, bool(value.get("empty", False)))
