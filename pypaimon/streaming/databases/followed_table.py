"""`FollowedTable`: one table of a database that is followed: its own stream, and what waits of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.builder.builder import StreamReadBuilder, opened_chunks
from pypaimon.streaming.internals import TableSchema

_LONGEST_INTERVAL = 30.0
_SHARE_OF_QUIET = 8


class FollowedTable:
    """One table. `look` and `rest` are called by one thread at a time; the rest is guarded by the engine's lock.

    Args:
        name: Its name.
        identity: Which table it is.
        builder: Its stream.
        batch_bytes: A plan with more bytes of rows comes in several chunks.
        now: The time, in seconds of a clock that never goes back.

    Attributes:
        name: See above.
        identity: See above.
        chunks: What was read and waits.
        failures: How often in a row it failed in a way that may pass.
        error: What it is parked for; None: it is not.
        suspicion: Why it may not be the table any more that it was: the next discovery decides. None: nothing.
        is_ended: Whether its stream has reached its end.
        schema: Of the last chunk that was handed out; None before the first.
    """

    def __init__(self, name: str, identity: str, builder: StreamReadBuilder, batch_bytes: int, now: float) -> None:
        self.name = name
        self.identity = identity
        self.scan, self.driver, self._reader = opened_chunks(builder, batch_bytes)
        self.chunks: deque[BatchChunk] = deque()
        self.failures = 0
        self.error: Exception | None = None
        self.suspicion: Exception | None = None
        self.is_ended = False
        self.schema: TableSchema | None = None
        self._found_at = now

    @property
    def is_stalled(self) -> bool:
        """Whether what it has begun to hand out does not go on for now."""
        return bool(self.failures) or self.error is not None or self.suspicion is not None

    def look(self, now: Callable[[], float]) -> BatchChunk | None:
        """What comes next of it; None: nothing new is there. Its threads have gone then, as after an error.

        Errors as `ChunkReader.look`.
        """
        try:
            chunk = self._reader.look()
        except BaseException:
            self.rest()
            raise
        if chunk is None:
            self.keep_alive(now())
            self.rest()
        else:
            self._found_at = now()
        return chunk

    def rest(self) -> None:
        """Let its threads go until the next look."""
        self._reader.rest()

    def idle_seconds(self, now: float, chance: float) -> float:
        """Until when it is left alone, after a look that has found nothing.

        The longer it was quiet, the longer: an eighth of that time, at least its poll interval, at most 30 s or its
        poll interval, and a tenth more or less, so that tables do not come together.

        Args:
            now: The time.
            chance: A number from 0 to 1.
        """
        least = self.driver.poll_seconds
        quiet = (now - self._found_at) / _SHARE_OF_QUIET
        return max(least, min(quiet, _LONGEST_INTERVAL)) * (0.9 + 0.2 * chance)

    def close(self) -> None:
        """Let go of everything, also of a look that another thread is at."""
        self._reader.close()

    def keep_alive(self, now: float) -> None:
        """Keep the files of its progress from expiring, while nobody reads it."""
        parts = self.driver.parts.known
        if parts is not None and parts.progress is not None:
            parts.progress.keep_alive(now)
