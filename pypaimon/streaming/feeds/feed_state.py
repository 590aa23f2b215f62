"""`FeedState`: where one reader of a feed stands, as a small value that a checkpoint keeps."""

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
    """Where a reader stands.

    Attributes:
        position: Before the plan in hand.
        behind: Position behind that plan; None: nothing of it was handed out.
        rows: How many rows of its share of that plan were handed out.
    """

    position: Position
    behind: Position | None = None
    rows: int = 0


@dataclass(frozen=True, slots=True)
class FeedIdentity:
    """What a saved state must have in common with the feed that goes on at it.

    Attributes:
        table: Identity of the table.
        settings: What decides which rows come, by name, in words.
    """

    table: str
    settings: Mapping[str, str]

    def state(self, share: Share, place: FeedState) -> dict[str, Any]:
        """The state of a reader, of what JSON can hold."""
        return {
            "version": _VERSION,
            "table": self.table,
            "settings": dict(self.settings),
            "worker": share.index,
            "workers": share.count,
            "position": _saved(place.position),
            "behind": None if place.behind is None else _saved(place.behind),
            "rows": place.rows,
        }

    def place(self, share: Share, state: Mapping[str, Any]) -> FeedState:
        """The place of a reader, out of its state.

        Raises:
            StreamConfigError: It is none, or one of a feed with other settings or another number of workers.
            TableChangedError: It is of another table.
        """
        try:
            version, table, settings = state["version"], state["table"], dict(state["settings"])
            worker, workers, rows = state["worker"], state["workers"], int(state["rows"])
            position, behind = state["position"], state["behind"]
        except (KeyError, TypeError, ValueError) as error:
            raise StreamConfigError(f"This is no state of a feed: {state!r}. Give what state_dict() gave.") from error
        if version != _VERSION:
            raise StreamConfigError(
                f"A state of version {version!r} of a feed: this release reads version {_VERSION}. Use the release "
                "that wrote it, or a newer one."
            )
        if table != self.table:
            raise TableChangedError(
                f"The state is one of another table (identity {table}; this one is {self.table}), or the table was "
                "re-created since.",
                "Begin anew, without the state.",
            )
        self._check_settings(settings)
        if (worker, workers) != (share.index, share.count):
            raise StreamConfigError(
                f"The state is that of worker {worker} of {workers}, and this is worker {share.index} of "
                f"{share.count}: go on with as many workers and ranks as before, each with its own state, as "
                "StatefulDataLoader does; with another number, first read to an end and begin a feed there."
            )
        return FeedState(_read(position), None if behind is None else _read(behind), rows)

    def _check_settings(self, saved: Mapping[str, Any]) -> None:
        names = sorted({*saved, *self.settings})
        other = [name for name in names if saved.get(name) != self.settings.get(name)]
        if other:
            told = "; ".join(f"{name} was {saved.get(name)}, and is {self.settings.get(name)}" for name in other)
            raise StreamConfigError(
                f"The state is that of a feed of other rows: {told}. Go on with the settings that it was saved with, "
                "or begin anew, without the state."
            )


def _saved(position: Position) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(position.to_json())
    return value


def _read(value: Any) -> Position:
    return Position.from_json(json.dumps(value))
