"""`SharedStart`: where a stream began, as a value that the pin of its first plan carries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.model.json_fields import fields_of
from pypaimon.streaming.model.position import Phase, Position, position_from_value, position_to_value


@dataclass(frozen=True, slots=True)
class SharedStart:
    """A start that one reader found, for all readers that begin at it, and for their restarts inside the first plan.

    Attributes:
        end: The last snapshot, if the stream ends at the one that was the latest; otherwise None.
    """

    token: str
    position: Position
    configured: str
    end: int | None = None

    @property
    def text(self) -> str:
        """The position in words."""
        what = "the full state of" if self.position.phase is Phase.FULL else "before"
        return f"{what} snapshot {self.position.snapshot}"

    def to_value(self) -> dict[str, Any]:
        value = {"token": self.token, "position": position_to_value(self.position), "configured": self.configured}
        return value if self.end is None else {**value, "end": self.end}

    @staticmethod
    def from_value(value: object) -> SharedStart:
        """Read what `to_value` made.

        Raises:
            ValueError: The value is not a start.
        """
        fields = fields_of(value, "start")
        position = position_from_value(fields.get("position", dict))
        return SharedStart(
            fields.get("token", str), position, fields.get("configured", str), fields.optional("end", int)
        )
