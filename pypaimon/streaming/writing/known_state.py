"""`KnownState`: what a writer that goes on knows of files that are there; others' are found out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pypaimon.streaming.commit.session import LastCommit
from pypaimon.streaming.commit.table_state import TableState
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.write_internals import BucketMode
from pypaimon.streaming.writing.dynamic_buckets.bucket_assigner import BucketAssigner
from pypaimon.streaming.writing.write_state import WriteState, write_state


class KnownState:
    """What decides the numbers and the buckets of new files. Not for several threads.

    Attributes:
        base: Id of the snapshot that it is of; 0: there was none.
        assigner: Gives keys their buckets, in a table with dynamic ones; None in others, and before `of`.
    """

    def __init__(self) -> None:
        self.assigner: BucketAssigner | None = None
        self._state: WriteState | None = None
        self.base = 0

    def of(self, table: Any, last: LastCommit | None, finished: Sequence[Any], *, replaces: bool) -> WriteState:
        """It, as it is now.

        Args:
            table: pypaimon's table.
            last: The newest commit of the writer.
            finished: Commit messages of files that are not committed yet.
            replaces: Whether the commit replaces what is there.
        """
        mode = table.bucket_mode()
        if mode not in (BucketMode.HASH_FIXED, BucketMode.HASH_DYNAMIC):
            return WriteState()
        if mode == BucketMode.HASH_DYNAMIC and (self.assigner is None or self.assigner.replaces != replaces):
            self.assigner, self._state = BucketAssigner(table, replaces=replaces), None
        directory = TableDirectory.of(table)
        if self._state is None or self._others_have_committed(directory, last):
            latest = latest_snapshot(directory)
            self.base = 0 if latest is None else latest.id
            self._state = _advanced(write_state(table), finished)
            if self.assigner is not None:
                self.assigner.follow(TableState(directory, latest).index)
        return self._state

    def note_finished(self, messages: Sequence[Any]) -> None:
        """Files of the writer came."""
        if self._state is not None:
            self._state = _advanced(self._state, messages)

    def note_committed(self, snapshot: int, *, replaced: bool) -> None:
        """The writer has committed.

        Args:
            snapshot: Id of its snapshot.
            replaced: Whether files that were there are gone.
        """
        if replaced:
            self.forget()
        elif snapshot != self.base + 1:
            self._state = None
        if self.assigner is not None:
            self.assigner.note_committed()
        self.base = snapshot

    def forget(self) -> None:
        """What was written is not in the table."""
        self.assigner, self._state = None, None

    def _others_have_committed(self, directory: TableDirectory, last: LastCommit | None) -> bool:
        """Whether there is a snapshot behind the one that is known. One request behind a commit of this writer.

        The snapshots from there on are kept, so that the next one is either there or not yet.
        """
        if last is not None and last.snapshot == self.base:
            return directory.snapshots.refreshed(self.base + 1) is not None
        latest = latest_snapshot(directory)
        return (0 if latest is None else latest.id) != self.base


def latest_snapshot(directory: TableDirectory) -> Snapshot | None:
    """The latest snapshot as it is in the store now."""
    directory.snapshots.forget()
    return directory.snapshots.get_latest_snapshot()


def _advanced(state: WriteState, messages: Sequence[Any]) -> WriteState:
    """The state behind files of our own."""
    numbers = [file.max_sequence_number for message in messages for file in message.new_files]
    return replace(state, sequence=max([state.sequence, *numbers]))
