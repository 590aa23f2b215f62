"""`WaitingRows`: chunks of many tables that were read and wait, plan by plan, and the tables that wait for room."""

from __future__ import annotations

from collections import deque
from itertools import islice

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.databases.followed_table import FollowedTable

_MOST_CHUNKS = 64


class WaitingRows:
    """Gives the chunks of a plan one after the other, then those of the next table that has any. Not thread-safe.

    Args:
        most_bytes: There is room while fewer bytes of rows wait, or none.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._ready: deque[FollowedTable] = deque()
        self._hand: FollowedTable | None = None
        self._held: list[FollowedTable] = []

    @property
    def bytes(self) -> int:
        """Bytes of the rows that wait."""
        return self._bytes

    @property
    def has_ready(self) -> bool:
        """Whether chunks of any table wait, but for that in hand."""
        return bool(self._ready)

    def head(self) -> tuple[FollowedTable, BatchChunk] | None:
        """What comes next, if it is there by now."""
        hand = self._hand
        return None if hand is None or not hand.chunks else (hand, hand.chunks[0])

    def pick(self) -> None:
        """Take the next table in hand, if there is none."""
        if self._hand is None and self._ready:
            self._hand = self._ready.popleft()

    def add(self, table: FollowedTable, chunk: BatchChunk) -> None:
        """A chunk was read."""
        table.chunks.append(chunk)
        self._bytes += size_of(chunk)
        if table is not self._hand and table not in self._ready:
            self._ready.append(table)

    def take(self, table: FollowedTable, chunk: BatchChunk) -> bool:
        """A chunk was handed out; False: that is known."""
        if not table.chunks or table.chunks[0] is not chunk:
            return False
        table.chunks.popleft()
        self._bytes -= size_of(chunk)
        if self._hand is table and chunk.last:
            self._hand = None
            if table.chunks:
                self._ready.append(table)
        self.pass_over(table)
        return True

    def pass_over(self, table: FollowedTable) -> None:
        """Have others not wait for a table that does not go on for now, if it is in hand and nothing waits of it."""
        if self._hand is table and not table.chunks and table.is_stalled:
            self._hand = None

    def forget(self, table: FollowedTable) -> None:
        """What waits of a table is not wanted any more."""
        self._bytes -= sum(map(size_of, table.chunks))
        table.chunks.clear()
        self.unhold(table)
        self._ready = deque(each for each in self._ready if each is not table)
        if self._hand is table:
            self._hand = None

    def has_room_for(self, table: FollowedTable) -> bool:
        """Whether a chunk of a table may be read; of that in hand always one."""
        if table is self._hand and not table.chunks:
            return True
        return self._has_room() and len(table.chunks) < _MOST_CHUNKS

    def hold(self, table: FollowedTable) -> None:
        """Have a table wait until there is room for it, and those before it have had theirs."""
        if table not in self._held:
            self._held.append(table)

    def unhold(self, table: FollowedTable) -> None:
        """It does not wait any more."""
        if table in self._held:
            self._held.remove(table)

    def going_on(self, most: int) -> list[FollowedTable]:
        """Tables for which there is room now; they wait no more."""
        hand = self._hand
        if self._has_room():
            found = list(islice((each for each in self._held if self.has_room_for(each)), most))
        else:
            found = [hand] if hand is not None and hand in self._held and self.has_room_for(hand) else []
        for table in found:
            self._held.remove(table)
        return found

    def _has_room(self) -> bool:
        return not self._bytes or self._bytes < self._most_bytes


def size_of(chunk: BatchChunk) -> int:
    """Bytes of its rows."""
    return 0 if chunk.data is None else int(chunk.data.nbytes)
