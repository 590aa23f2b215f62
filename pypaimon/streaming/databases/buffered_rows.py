"""`BufferedRows`: chunks of many tables that were read ahead, and the tables that wait for room."""

from __future__ import annotations

from collections import deque
from itertools import islice

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.databases.followed_table import FollowedTable

_MOST_CHUNKS = 64


class BufferedRows:
    """Gives the chunks of one plan in order, then those of the next table that has any. Not thread-safe.

    Args:
        most_bytes: There is room while fewer bytes are buffered, or nothing is.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._ready: deque[FollowedTable] = deque()
        self._current: FollowedTable | None = None
        self._held: list[FollowedTable] = []

    @property
    def bytes(self) -> int:
        """Bytes of the buffered rows."""
        return self._bytes

    @property
    def has_ready(self) -> bool:
        """Whether chunks are buffered of a table that is not the current one."""
        return bool(self._ready)

    def head(self) -> tuple[FollowedTable, BatchChunk] | None:
        """The next chunk and its table, None if it is not there yet."""
        current = self._current
        return None if current is None or not current.chunks else (current, current.chunks[0])

    def pick(self) -> None:
        """Make the next table the current one, if there is no current one."""
        if self._current is None and self._ready:
            self._current = self._ready.popleft()

    def add(self, table: FollowedTable, chunk: BatchChunk) -> None:
        """Buffer a chunk."""
        table.chunks.append(chunk)
        self._bytes += size_of(chunk)
        if table is not self._current and table not in self._ready:
            self._ready.append(table)

    def take(self, table: FollowedTable, chunk: BatchChunk) -> bool:
        """Remove a chunk that was handed out; False if it was already removed."""
        if not table.chunks or table.chunks[0] is not chunk:
            return False
        table.chunks.popleft()
        self._bytes -= size_of(chunk)
        if self._current is table and chunk.last:
            self._current = None
            if table.chunks:
                self._ready.append(table)
        self.pass_over(table)
        return True

    def pass_over(self, table: FollowedTable) -> None:
        """Let other tables go first if the current one is stalled in the middle of a plan and has nothing buffered."""
        if self._current is table and not table.chunks and table.is_stalled:
            self._current = None

    def forget(self, table: FollowedTable) -> None:
        """Discard the chunks of a table."""
        self._bytes -= sum(map(size_of, table.chunks))
        table.chunks.clear()
        self.unhold(table)
        self._ready = deque(each for each in self._ready if each is not table)
        if self._current is table:
            self._current = None

    def has_room_for(self, table: FollowedTable) -> bool:
        """Whether a chunk of a table may be read; one of the current table always may."""
        if table is self._current and not table.chunks:
            return True
        return self._has_room() and len(table.chunks) < _MOST_CHUNKS

    def hold(self, table: FollowedTable) -> None:
        """Let a table wait until there is room for it, after those that already wait."""
        if table not in self._held:
            self._held.append(table)

    def unhold(self, table: FollowedTable) -> None:
        """Let a table no longer wait for room."""
        if table in self._held:
            self._held.remove(table)

    def take_runnable(self, most: int) -> list[FollowedTable]:
        """Remove and return waiting tables for which there is room now."""
        current = self._current
        if self._has_room():
            found = list(islice((each for each in self._held if self.has_room_for(each)), most))
        else:
            found = [current] if current is not None and current in self._held and self.has_room_for(current) else []
        for table in found:
            self._held.remove(table)
        return found

    def _has_room(self) -> bool:
        return not self._bytes or self._bytes < self._most_bytes


def size_of(chunk: BatchChunk) -> int:
    """Bytes of the rows of a chunk."""
    return 0 if chunk.data is None else int(chunk.data.nbytes)
