"""`HourlyTurn`: which process looks, once an hour, for what is due as time passes.

A file in the directory of the consumers says when one has done so. A process that commits once remembers nothing, and
of several that start at the same moment only one may take the turn.
"""

from __future__ import annotations

import json
from uuid import uuid4

from pypaimon.streaming.consumers.consumer_manager import consumers_of
from pypaimon.streaming.io.conditional_writes import ChangedFileError
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.json_fields import parse_fields

_NAME = "last-maintenance"
_HOUR = 3600.0


class HourlyTurn:
    """The turns of one process."""

    def __init__(self) -> None:
        self._token = str(uuid4())

    def take(self, directory: TableDirectory, now: float) -> float | None:
        """Take the turn of this hour. One request, and another one to take it.

        A turn whose process has died counts too, so that what is due is looked for an hour later.

        Args:
            directory: The table.
            now: The current time, in seconds since the epoch.

        Returns:
            None if it was taken, or was by this process before. Otherwise the time of the next turn.

        Raises:
            CorruptTableError: The file is damaged.
            StoreError: The store failed (retriable).
        """
        path = f"{consumers_of(directory).directory}/{_NAME}"
        try:
            (taken, token), seen = directory.store.look(path, _parsed)
        except FileNotFoundError:
            seen = None
        else:
            if token == self._token and now < taken + _HOUR:
                return None
            # A time in the future is that of another clock.
            if min(taken, now) + _HOUR > now:
                return min(taken, now) + _HOUR
        content = {"timeMillis": int(1000 * now), "token": self._token}
        try:
            directory.store.replace(path, json.dumps(content).encode(), seen)
        except ChangedFileError:
            return now + _HOUR
        return None


def _parsed(data: bytes) -> tuple[float, str]:
    fields = parse_fields(data, "time of the last maintenance")
    return fields.get("timeMillis", int) / 1000, fields.get("token", str)
