"""`Offset`: where a query stands, as Spark logs it: the stream's position, and where the query began."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.position import FORMAT_VERSION, Position

_ORIGIN = "origin"


@dataclass(frozen=True, slots=True)
class Offset:
    """A position and the origin of the query.

    Spark logs the ends of batches only, and asks for the initial offset again when it replays batch 0. The origin,
    which every offset carries, lets such a replay begin where the batch began at first.

    Attributes:
        position: Where the query stands; None while the table had no snapshot to begin at.
        origin: Where it began; None as long as `position`.
    """

    table: str
    position: Position | None = None
    origin: Position | None = None

    @property
    def is_initial(self) -> bool:
        """Whether nothing was read before it."""
        return self.position == self.origin

    def to_json(self) -> dict[str, Any]:
        """What Spark logs and compares as text: equal offsets give the same keys and values in the same order."""
        if self.position is None or self.origin is None:
            return {"version": FORMAT_VERSION, "table": self.table}
        value: dict[str, Any] = json.loads(self.position.to_json())
        origin = json.loads(self.origin.to_json())
        value[_ORIGIN] = {key: each for key, each in origin.items() if key not in ("version", "table")}
        return value

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Offset:
        """Read what `to_json` wrote."""
        shared = {key: value.get(key) for key in ("version", "table")} if isinstance(value, Mapping) else {}
        try:
            if not isinstance(shared.get("table"), str):
                raise StreamConfigError("there is no table in it")
            if _ORIGIN not in value:
                if shared["version"] != FORMAT_VERSION or len(value) != len(shared):
                    raise StreamConfigError("it says nothing about where the query began")
                return Offset(str(shared["table"]))
            position = Position.from_json(json.dumps({key: each for key, each in value.items() if key != _ORIGIN}))
            origin = Position.from_json(json.dumps({**shared, **value[_ORIGIN]}))
        except (StreamConfigError, TypeError) as error:
            raise StreamConfigError(
                f"The checkpoint holds {json.dumps(value)}, which is not an offset of this source ({error}). It "
                "belongs to another source or to a newer release; use a checkpoint directory of its own for each query."
            ) from error
        return Offset(position.table, position, origin)
