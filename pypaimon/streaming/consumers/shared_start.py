"""`SharedStart`: where a stream began, as a value that the fences of its first plan carry."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.model.position import Phase, Position


@dataclass(frozen=True, slots=True)
class SharedStart:
    """A start that was found, for all readers that are to begin at it, and for their restarts inside the first plan.

    Attributes:
        token: Tells it from every other start; the progress files of who began with it carry it.
        position: Where it is: a full plan's snapshot, or the next snapshot.
        configured: The start that it was found for, as text: `latest-full`, `from-snapshot 5`...
        end: The last snapshot, where the stream ends at the one that was the latest; else None.
    """

    token: str
    position: Position
    configured: str
    end: int | None = None

    @property
    def text(self) -> str:
        """Where it is, in words."""
        what = "the full state of" if self.position.phase is Phase.FULL else "before"
        return f"{what} snapshot {self.position.snapshot}"

    def to_value(self) -> dict[str, Any]:
        """It as values of JSON."""
        value = {
            "token": self.token,
            "position": json.loads(self.position.to_json()),
            "configured": self.configured,
        }
        return value if self.end is None else {**value, "end": self.end}

    @staticmethod
    def from_value(value: Any) -> SharedStart:
        """Read what `to_value` made.

        Raises:
            ValueError: It is none.
        """
        try:
            token, configured, end = value["token"], value["configured"], value.get("end")
            position = Position.from_json(json.dumps(value["position"]))
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"no start: {value!r}") from error
        if not (isinstance(token, str) and isinstance(configured, str) and isinstance(end, (int, type(None)))):
            raise ValueError(f"no start: {value!r}")
        return SharedStart(token, position, configured, end)
