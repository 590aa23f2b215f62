"""`Cursor`: the stream of some slots that stand at one position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.builder.assembly import StreamAssembly
from pypaimon.streaming.builder.opened import opened_chunks
from pypaimon.streaming.errors import EndOfScan
from pypaimon.streaming.model.position import Phase, Position


@dataclass(frozen=True, slots=True)
class HandedOut:
    """What of a cursor was handed out.

    Attributes:
        position: Where it stands: after the last plan of which something was handed out.
        before: Where that plan began.
        chunk: The last chunk that was handed out; None: none was.
    """

    position: Position
    before: Position
    chunk: BatchChunk | None = None

    @property
    def is_in_plan(self) -> bool:
        """Whether more of the plan is to come."""
        return self.chunk is not None and not self.chunk.last


class Cursor:
    """The stream of some slots from a position. `look` is called by one thread at a time.

    Args:
        slots: With the numbers of their tenures; they all stand at the position.
        position: It.
        builder: A stream of these slots alone.
        batch_bytes: A plan with more bytes of rows comes in several chunks.

    Attributes:
        slots: See above.
        handed: What was handed out.
        read_to: Where the next look goes on.
        due: Not before this time is another look worth it.
        has_ended: It has come to the end that its builder was given.
    """

    def __init__(self, slots: Mapping[int, int], position: Position, builder: StreamAssembly, batch_bytes: int) -> None:
        self.slots = dict(slots)
        self.handed = HandedOut(position, position)
        self.read_to = position
        self.due = float("-inf")
        self.has_ended = False
        _, self._driver, self._reader = opened_chunks(builder, batch_bytes)
        self._driver.seek(position)

    @property
    def poll_seconds(self) -> float:
        """Seconds between two looks that find nothing."""
        return self._driver.poll_seconds

    @property
    def is_between_snapshots(self) -> bool:
        """Whether it stands before a snapshot, with nothing else to remember: then it can be one with another one."""
        position = self.handed.position
        return position.phase is Phase.FOLLOW and position.unit is None and not self.handed.is_in_plan

    def look(self) -> BatchChunk | None:
        """What comes next; None: nothing new is there, or nothing comes any more. Errors as `ChunkReader.look`."""
        chunk = None
        try:
            chunk = self._reader.look()
        except EndOfScan:
            self.has_ended = True
        self.read_to = chunk.plan.position if chunk is not None else self._driver.position or self.read_to
        return chunk

    def rest(self) -> None:
        """Let the threads go until the next look."""
        self._reader.rest()

    def close(self) -> None:
        """Let go of everything, also of a look that another thread is at."""
        self._reader.close()
