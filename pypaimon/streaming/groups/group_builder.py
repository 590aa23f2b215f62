"""`GroupStreamBuilder`: opens the streams of a group, made by `StreamReadBuilder.new_group`."""

from __future__ import annotations

from functools import partial

from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.groups.group_reader import GroupReader
from pypaimon.streaming.groups.group_settings import GroupSettings
from pypaimon.streaming.groups.group_stream import BlockingGroupStream, GroupStream
from pypaimon.streaming.groups.membership import Membership
from pypaimon.streaming.options.arguments import at_least
from pypaimon.streaming.options.stream_options import DEFAULT_BATCH_BYTES, DEFAULT_READ_AHEAD_BYTES
from pypaimon.streaming.spec.resolve import ResolvedStream


class GroupStreamBuilder:
    """Opens streams that share a table as the members of a group; made by `StreamReadBuilder.new_group`.

    Each `open` is a member. Filter, start and limits of the stream are the same for all members.
    """

    def __init__(self, stream: ResolvedStream, settings: GroupSettings) -> None:
        self._stream = stream
        self._settings = settings

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._settings.group_id}, {self._stream.table.name})"

    def open(
        self, *, read_ahead_bytes: int = DEFAULT_READ_AHEAD_BYTES, batch_bytes: int = DEFAULT_BATCH_BYTES
    ) -> GroupStream:
        """The rows of a new member's slots, for `async with` and `async for`. It joins with the first batch.

        Args:
            read_ahead_bytes: Reading ahead pauses while this many bytes of rows wait; one batch is always read.
            batch_bytes: A plan with more bytes of rows comes as several batches.

        Raises:
            StreamConfigError: A size is invalid. With the first batch: the stream or its table does not allow a group,
                or the group has other settings.
            UnsupportedTableError: With the first batch: the table cannot be streamed, or not be divided.
        """
        clock = Clock()
        return GroupStream(self._reader(read_ahead_bytes, batch_bytes, clock), self._settings, clock)

    def open_sync(
        self, *, read_ahead_bytes: int = DEFAULT_READ_AHEAD_BYTES, batch_bytes: int = DEFAULT_BATCH_BYTES
    ) -> BlockingGroupStream:
        """As `open`, for a plain `with` and `for`."""
        clock = Clock()
        return BlockingGroupStream(self._reader(read_ahead_bytes, batch_bytes, clock), self._settings, clock)

    def _reader(self, read_ahead_bytes: int, batch_bytes: int, clock: Clock) -> GroupReader:
        size = at_least(1, "open: batch_bytes", batch_bytes)
        join = partial(Membership, self._stream, self._settings, size, clock)
        return GroupReader(join, at_least(0, "open: read_ahead_bytes", read_ahead_bytes), clock)
