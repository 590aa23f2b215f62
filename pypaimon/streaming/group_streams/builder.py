"""`GroupStreamBuilder`: a stream that the members of a group share, made by `StreamReadBuilder.with_group`."""

from __future__ import annotations

from functools import partial
from typing import Any

from pypaimon.streaming.builder.assembly import StreamAssembly
from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.consumers.consumer_names import check_consumer_id
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.group_streams.group_settings import GroupSettings
from pypaimon.streaming.group_streams.membership import Membership
from pypaimon.streaming.group_streams.reader import GroupReader
from pypaimon.streaming.group_streams.stream import BlockingGroupStream, GroupStream
from pypaimon.streaming.options.arguments import at_least, choice, finite_seconds
from pypaimon.streaming.options.stream_options import DEFAULT_BATCH_BYTES, DEFAULT_READ_AHEAD_BYTES, CommitMode


class GroupStreamBuilder:
    """A stream that the members of a group share; each `open` is a member.

    Args:
        builder: The stream: filter, start, limits, as all members have them.
        settings: Of the group.

    Raises:
        StreamConfigError: A setting cannot be.
    """

    def __init__(self, builder: StreamAssembly, settings: GroupSettings) -> None:
        self._builder = builder.copy()
        self._settings = settings

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._settings.group_id}, {self._builder!r})"

    def open(
        self, *, read_ahead_bytes: int = DEFAULT_READ_AHEAD_BYTES, batch_bytes: int = DEFAULT_BATCH_BYTES
    ) -> GroupStream:
        """The rows of what this member has, for `async with` and `async for`. It joins when the first is asked for.

        Args:
            read_ahead_bytes: Reading ahead pauses while so many bytes of rows wait; one batch always may.
            batch_bytes: A plan with more bytes of rows comes as several batches.

        Raises:
            StreamConfigError: A size cannot be. By the first batch: the stream, or its table, cannot be a group's; or
                the group was made with another stream.
            UnsupportedTableError: By the first batch: the table cannot be streamed, or not be divided.
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
        join = partial(Membership, self._builder.copy(), self._settings, size, clock)
        return GroupReader(join, at_least(0, "open: read_ahead_bytes", read_ahead_bytes), clock)


def group_settings(
    group_id: str,
    member: str | None,
    session_timeout: float | None,
    commit: str,
    max_hold: float | None,
    **callbacks: Any,
) -> GroupSettings:
    """The arguments of `StreamReadBuilder.with_group`, checked.

    Raises:
        StreamConfigError: One of them cannot be.
    """
    check_consumer_id(group_id)
    if member is not None:
        check_consumer_id(member)
    for name, value in (("session_timeout", session_timeout), ("max_hold", max_hold)):
        if value is not None:
            finite_seconds(f"with_group: {name}", value, above_zero=True)
    for name, call in callbacks.items():
        if call is not None and not callable(call):
            raise StreamConfigError(f"with_group: {name}: expected a function, got {call!r}")
    mode = choice(CommitMode, "with_group: commit", commit)
    return GroupSettings(group_id, member, session_timeout, mode, max_hold, **callbacks)
