"""`GroupBatch` and `BlockingGroupBatch`: rows that a member of a group was given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from pypaimon.streaming.batches.batch import Batch, BlockingBatch
from pypaimon.streaming.batches.chunks import BatchChunk


class GroupBatch(Batch):
    """A batch of an asynchronous stream of a group: as `Batch`, of the slots that it names.

    `position` is where these slots go on; `commit` confirms all that the stream has handed out up to this batch.
    """

    def __init__(
        self, chunk: BatchChunk, tokens: Mapping[int, int], commit: Callable[[BatchChunk], Awaitable[None]]
    ) -> None:
        super().__init__(chunk, commit)
        self._tokens = tokens

    @property
    def slots(self) -> tuple[int, ...]:
        """The slots whose rows these are, ascending."""
        return tuple(sorted(self._tokens))

    @property
    def tokens(self) -> Mapping[int, int]:
        """For each slot the number of the state that gave it to this member: a later owner has a greater one."""
        return MappingProxyType(dict(self._tokens))

    @property
    def token(self) -> int:
        """The greatest of `tokens`."""
        return max(self._tokens.values())


class BlockingGroupBatch(BlockingBatch):
    """As `GroupBatch`, of a blocking stream."""

    def __init__(self, chunk: BatchChunk, tokens: Mapping[int, int], commit: Callable[[BatchChunk], None]) -> None:
        super().__init__(chunk, commit)
        self._tokens = tokens

    @property
    def slots(self) -> tuple[int, ...]:
        """The slots whose rows these are, ascending."""
        return tuple(sorted(self._tokens))

    @property
    def tokens(self) -> Mapping[int, int]:
        """For each slot the number of the state that gave it to this member: a later owner has a greater one."""
        return MappingProxyType(dict(self._tokens))

    @property
    def token(self) -> int:
        """The greatest of `tokens`."""
        return max(self._tokens.values())
