"""`ProgressFile`: one consumer file that a reader writes, which notices other writers."""

from __future__ import annotations

from dataclasses import replace

from pypaimon.streaming.consumers.consumer_manager import EXPIRED, Consumer, ConsumerManager
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from pypaimon.streaming.errors import ConsumerConflictError
from pypaimon.streaming.io.conditional_writes import ChangedFileError, Seen

_NEVER = float("-inf")
_TRIES = 8


class ProgressFile:
    """One file of a reader, and what it knows about it. State changes only after the store has answered.

    Each write replaces the version that was seen, and no other. On a store without conditional writes, a late write of
    the reader before can still arrive after this one has taken over. The file then has the owner of that reader, and
    this one takes it back.

    Attributes:
        content: What the reader last wrote; None before that, and after the file was deleted.
        written_at: When it last wrote, in seconds.
    """

    def __init__(self, manager: ConsumerManager, name: ConsumerName, owner: str, former: set[str]) -> None:
        self._manager = manager
        self._owner = owner
        self._former = former
        self._seen: Seen | None = None
        self.name = name
        self.content: Consumer | None = None
        self.written_at = _NEVER

    @property
    def is_written(self) -> bool:
        return self.content is not None

    def says(self, consumer: Consumer) -> bool:
        """Whether the file has this content already. A fingerprint that is not known does not have to be written."""
        content = self.content
        return (
            content is not None
            and (content.next_snapshot, content.began) == (consumer.next_snapshot, consumer.began)
            and consumer.fingerprint in (None, content.fingerprint)
        )

    @property
    def next_snapshot(self) -> int | None:
        """The next snapshot that the reader last wrote; None before that."""
        return None if self.content is None else self.content.next_snapshot

    @property
    def began(self) -> str | None:
        """Token of the start that the file's reader began with, as it last wrote."""
        return None if self.content is None else self.content.began

    def take_over(self, now: float) -> Consumer | None:
        """Make the file this reader's if it exists; what was found. One GET, and one PUT if it exists."""
        for _ in range(_TRIES):
            found = self._look()
            if found is None:
                return None
            try:
                self._replace(replace(found, owner=self._owner), now)
            except ChangedFileError:
                continue
            return found
        raise self._conflict("other readers keep writing it")

    def claim(self, consumer: Consumer, now: float, follows: bool) -> None:
        """Write the file, whatever it contains. One GET and one PUT.

        Args:
            follows: The reader that has written it is a former one. It may be a newer one if this reader took over
                another file earlier.
        """
        for _ in range(_TRIES):
            self._look(follows)
            try:
                return self._replace(replace(consumer, owner=self._owner), now)
            except ChangedFileError:
                continue
        raise self._conflict("other readers keep writing it")

    def check(self) -> None:
        """Check that no other reader has written or deleted the file since. One GET."""
        found = self._manager.look(self.name)
        if found is None:
            if self.is_written:
                raise self._conflict("it was deleted, alone or with the table, or consumer.expiration-time has passed")
        elif found[0].owner == EXPIRED:
            raise self._conflict("consumer.expiration-time had passed, and maintenance is deleting it")
        elif found[0].owner != self._owner and found[0].owner not in self._former:
            owner = found[0].owner
            by = "Java, a reset or another library" if owner is None else f"another reader ({owner})"
            raise self._conflict(f"it now belongs to {by}, at snapshot {found[0].next_snapshot}")
        self._seen = None if found is None else found[1]

    def write(self, consumer: Consumer, now: float) -> None:
        """Write the file, which was checked before. One PUT.

        Raises:
            ConsumerConflictError: Another reader has written or deleted it; nothing was written.
        """
        for _ in range(_TRIES):
            try:
                return self._replace(replace(consumer, owner=self._owner), now)
            except ChangedFileError:  # noqa: PERF203
                self.check()
        raise self._conflict("other readers keep writing it")

    def delete(self) -> None:
        """Delete the file, unless it was this reader's and has become another's. One GET then, one DELETE."""
        found = self._manager.look(self.name) if self.is_written else None
        if found is None or found[0].owner == self._owner or found[0].owner in self._former:
            self._manager.delete(self.name)
        self.forget()

    def forget(self) -> None:
        self.content = self._seen = None

    def _look(self, follows: bool = True) -> Consumer | None:
        found = self._manager.look(self.name)
        self._seen = None if found is None else found[1]
        if found is None:
            return None
        if follows and found[0].owner not in (None, self._owner):
            self._former.add(str(found[0].owner))
        return found[0]

    def _replace(self, consumer: Consumer, now: float) -> None:
        self._manager.replace(self.name, consumer, self._seen)
        self.content = consumer
        self.written_at = now

    def _conflict(self, what: str) -> ConsumerConflictError:
        return ConsumerConflictError(
            f"{self._manager.path(self.name)}: {what}. This reader ({self._owner}, last saved: {self.next_snapshot}) "
            "wrote nothing. Only one reader at a time may use a consumer id, or a shard or member of it; the newest "
            "one wins. Start this one again to take over."
        )
