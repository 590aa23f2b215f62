"""`FeedState`: the progress of one reader of a feed, as a small value for checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.errors import StreamConfigError, TableChangedError
from pypaimon.streaming.feeds.share import Share
from pypaimon.streaming.model.position import Position

_VERSION = 1


@dataclass(frozen=True, slots=True)
class FeedState:
    """The progress of a reader.

    Attributes:
        after: The position after the current plan; None if nothing of it was handed out.
    """

    position: Position
    after: Position | None = None
    rows: int = 0


@dataclass(frozen=True, slots=True)
class FeedIdentity:
    """What a saved state must have in common with the feed that continues from it."""

    table: str
    settings: Mapping[str, str]

    def state(self, share: Share, place: FeedState) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "table": self.table,
            "settings": dict(self.settings),
            "worker": share.index,
            "workers": share.count,
            "position": _saved(place.position),
            "behind": None if place.after is None else _saved(place.after),
            "rows": place.rows,
        }

    def place(self, share: Share, state: Mapping[str, Any]) -> FeedState:
        """Read what `state` made.

        Raises:
            StreamConfigError: The state is invalid, or belongs to a feed with other settings or another number of
                workers.
            TableChangedError: The state belongs to another table.
        """
        try:
            version, table, settings = state["version"], state["table"], dict(state["settings"])
            worker, workers, rows = state["worker"], state["workers"], int(state["rows"])
            position, after = state["position"], state["behind"]
        except (KeyError, TypeError, ValueError) as error:
            raise StreamConfigError(
                f"Invalid state of a feed: {state!r}. Expected a result of state_dict()."
            ) from error
        if version != _VERSION:
            raise StreamConfigError(
                f"The state of the feed has version {version!r}, but this release reads version {_VERSION}. Use the "
                "release that wrote it, or a newer one."
            )
        if table != self.table:
            raise TableChangedError(
                f"The state belongs to another table (identity {table}; this one is {self.table}), or the table was "
                "re-created since.",
                advice="Start again without the state.",
            )
        self._check_settings(settings)
        if (worker, workers) != (share.index, share.count):
            raise StreamConfigError(
                f"The state belongs to worker {worker} of {workers}, but this is worker {share.index} of "
                f"{share.count}: use as many workers and ranks as before, each with its own state, as "
                "StatefulDataLoader does. To change the number, first read to an end and start a new feed there."
            )
        return FeedState(_read(position), None if after is None else _read(after), rows)

    def _check_settings(self, saved: Mapping[str, Any]) -> None:
        names = sorted({*saved, *self.settings})
        other = [name for name in names if saved.get(name) != self.settings.get(name)]
        if other:
            changes = "; ".join(f"{name} was {saved.get(name)}, now {self.settings.get(name)}" for name in other)
            raise StreamConfigError(
                f"The state belongs to a feed with other settings: {changes}. Use the settings of the state, or start "
                "again without it."
            )


def _saved(position: Position) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(position.to_json())
    return value


def _read(value: Any) -> Position:
    return Position.from_json(json.dumps(value))
