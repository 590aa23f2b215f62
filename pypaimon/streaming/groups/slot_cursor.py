"""`SlotCursor`: the stream of those slots of a member that are at one position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.errors import EndOfScan
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.scanning.metrics import ScanMetrics
from pypaimon.streaming.spec.openers import open_chunks
from pypaimon.streaming.spec.resolve import ResolvedStream


@dataclass(frozen=True, slots=True)
class CursorProgress:
    """What was handed out of a cursor.

    Attributes:
        position: The end of the last plan of which something was handed out.
        before: The beginning of that plan.
        chunk: The last chunk that was handed out; None before the first.
    """

    position: Position
    before: Position
    chunk: BatchChunk | None = None

    @property
    def is_in_plan(self) -> bool:
        return self.chunk is not None and not self.chunk.last


class SlotCursor:
    """The stream of some slots from a position. `look` is called by one thread at a time.

    Args:
        slots: The slots, with the generations since which the member has them. All are at `position`.
        stream: The stream of these slots alone.
        batch_bytes: A plan with more bytes of rows comes in several chunks.

    Attributes:
        read_to: Where the next look continues.
        due: Time before which no other look is needed.
        has_ended: It has reached the end of its stream.
    """

    def __init__(self, slots: Mapping[int, int], position: Position, stream: ResolvedStream, batch_bytes: int) -> None:
        self.slots = dict(slots)
        self.progress = CursorProgress(position, position)
        self.read_to = position
        self.due = float("-inf")
        self.has_ended = False
        _, self._driver, self._reader = open_chunks(stream, batch_bytes)
        self._driver.seek(position)

    @property
    def poll_seconds(self) -> float:
        """Seconds between two looks that find nothing."""
        return self._driver.poll_seconds

    @property
    def metrics(self) -> ScanMetrics:
        return self._driver.metrics

    @property
    def is_between_snapshots(self) -> bool:
        """Whether it is before a snapshot, not inside one or inside a plan: then it can be merged with another one."""
        return not self.progress.position.is_inside and not self.progress.is_in_plan

    def look(self) -> BatchChunk | None:
        """The next chunk; None if there is nothing new, or the stream has ended. Errors as `ChunkReader.look`."""
        chunk = None
        try:
            chunk = self._reader.look()
        except EndOfScan:
            self.has_ended = True
        self.read_to = chunk.plan.position if chunk is not None else self._driver.position or self.read_to
        return chunk

    def check_end(self) -> None:
        """Check, after the end, that the last snapshot is still the one that was read.

        Raises:
            TableChangedError: The table was rolled back.
            CorruptTableError: The snapshot cannot be decoded, or may not be read.
        """
        checks = self._driver.parts.get().planner.checks
        last, fingerprint = self.read_to.last_read, self.read_to.fingerprint
        if fingerprint is not None and checks.check_fingerprint(last, fingerprint) is None:
            # It has expired, unless the table ends before it.
            checks.check_reached(self.read_to)

    def rest(self) -> None:
        """Release the threads until the next look."""
        self._reader.rest()

    def close(self) -> None:
        """Release everything, and abandon a look of another thread."""
        self._reader.close()
