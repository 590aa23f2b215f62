"""`SnapshotRangeValidator`: whether a position is valid, has expired, is beyond the latest, or of another table.

Java's rules: docs/java-semantics.md#ranges-and-expiry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto

from pypaimon.streaming.errors import (
    OR_REPLACED,
    CorruptTableError,
    PaimonStreamError,
    PositionBeyondLatestError,
    PositionExpiredError,
    TableChangedError,
)
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.fingerprints import is_same_history
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.position import UNKNOWN_TABLE, Position

RANGE_CHECK_INTERVAL = 16
"""Polls in a row that found nothing between two checks of the range (Java's `NextSnapshotFetcher`)."""


_UNDO = "Decide what to undo, then choose another start with with_start(...), or reset the consumer or group."
_RESTORE = (
    "Once the file is restored the stream continues at this position. If the table is being dropped, a later call says "
    "so, when its snapshots or its schema are gone."
)


class ReaderKind(Enum):
    """What a reader is, which decides what it can do after a snapshot has expired."""

    STREAM = auto()
    BATCH = auto()
    GROUP = auto()
    FEED = auto()

    @contextmanager
    def advising(self) -> Iterator[None]:
        """A context in which PositionExpiredError gets the advice for this kind of reader."""
        try:
            yield
        except PositionExpiredError as expired:
            if self is ReaderKind.BATCH:
                _advise(
                    expired,
                    "Choose a later snapshot, or two tags, or keep snapshots longer: raise snapshot.time-retained.",
                )
            if self is ReaderKind.FEED:
                _advise(
                    expired,
                    "Make the feed again, with a later start and without saved states, or keep snapshots longer: raise "
                    "snapshot.time-retained or changelog.time-retained.",
                )
            if self is ReaderKind.GROUP:
                start = "latest" if expired.earliest_needs_it else "earliest"
                _advise(
                    expired,
                    f"Continue with `paimon-stream consumers reset TABLE GROUP --to {start}`, which leaves a gap, or "
                    "keep snapshots longer: raise snapshot.time-retained or changelog.time-retained.",
                )
            raise


def _advise(expired: PositionExpiredError, advice: str) -> None:
    """Replace the advice, which names `with_on_expired`."""
    PaimonStreamError.__init__(expired, expired.message, advice=advice)


class SnapshotRangeValidator:
    """Checks positions against the existing snapshots. Each check sends requests.

    Args:
        is_batch: Whether the reader is given snapshots, and so has no other start to choose.
    """

    def __init__(self, directory: TableDirectory, with_changelogs: bool, is_batch: bool = False) -> None:
        self._directory = directory
        self._is_batch = is_batch
        self.with_changelogs = with_changelogs
        self._log = StreamLog.of(__name__, directory.table)

    def earliest_id(self) -> int | None:
        """The first snapshot that can be followed."""
        snapshots = self._directory.snapshots
        ids = [snapshots.earliest_id()]
        if self.with_changelogs:
            ids.append(snapshots.earliest_changelog_id())
        return min((each for each in ids if each is not None), default=None)

    def latest_id(self) -> int | None:
        return self._directory.snapshots.latest_id()

    def check_missing(self, position: Position) -> int | None:
        """Find out why the snapshot of a position is missing. Returns if it is the next one to be committed.

        Returns:
            The id of the latest snapshot, or None.

        Raises:
            PositionExpiredError: The snapshot has expired.
            PositionBeyondLatestError: The table ends before it, and nothing shows that it has not always.
            TableChangedError: The table was rolled back, emptied, dropped or re-created.
            CorruptTableError: Its file is missing in the middle of others.
        """
        snapshots = self._directory.snapshots
        # Snapshots that were read earlier would answer for a table that is no longer there.
        snapshots.forget()
        self.check_identity()
        latest, wanted = snapshots.latest_id(), position.snapshot
        self._check_not_beyond(position, latest)
        if latest is None:
            return None
        if wanted < 1:
            raise self.expired(wanted)
        if wanted == latest + 1 or self.available(wanted) is not None:
            return latest
        # Asked after the snapshot: one that expires in between is older than the earliest then.
        earliest = self.earliest_id()
        if earliest is None or wanted < earliest:
            raise self.expired(wanted)
        raise self.diagnosed(
            CorruptTableError(
                snapshots.get_snapshot_path(wanted),
                f"this snapshot is missing, though the table holds snapshots {earliest} to {latest}",
                advice=_RESTORE,
            )
        )

    def check_reached(self, position: Position) -> None:
        """Check that the last snapshot that was read is or was in the table."""
        self._check_not_beyond(position, self._directory.snapshots.latest_id())

    def _check_not_beyond(self, position: Position, latest: int | None) -> None:
        if position.last_read > (latest or 0):
            raise self.beyond(position, latest)

    def beyond(self, position: Position, latest: int | None) -> PaimonStreamError:
        """The error for a position of which the last snapshot that was read comes after the latest one.

        A drop deletes one file after the other, snapshots before schemas or after them. While a schema is left, a table
        that ends before what was read of it looks as after a rollback, and without snapshots as after Java's purge. A
        position without a fingerprint does not show that anything was read: it may be of another table.
        """
        if position.fingerprint is None:
            return self.diagnosed(PositionBeyondLatestError(position.snapshot, latest, self._is_batch))
        return self.cut_off(position.snapshot, latest)

    def cut_off(self, wanted: int, latest: int | None) -> PaimonStreamError:
        """The error for a table that ends before what was there."""
        if latest is None:
            return self.emptied()
        return self.diagnosed(
            TableChangedError(
                f"The table was rolled back, or is being dropped: it ends at snapshot {latest}, and the position is at "
                f"snapshot {wanted}. Rows that were delivered may be gone.",
                advice=_UNDO,
                option="with_start",
            )
        )

    def emptied(self) -> PaimonStreamError:
        """The error for a table without snapshots that had some, which no expiry and no rollback leaves."""
        return self.diagnosed(
            TableChangedError(
                "The table is being dropped, or was emptied: it has no snapshots any more.",
                advice="If it is being dropped, close this reader. Otherwise decide what to undo, then start again.",
            )
        )

    def check_identity(self) -> None:
        """Check that this is still the table that the stream was built for."""
        self.begin_identity()()

    def diagnosed(self, error: PaimonStreamError, *, had_snapshots: bool = False) -> PaimonStreamError:
        """The error for a missing or different file: TableChangedError if the table was dropped or re-created.

        Otherwise the given error, which is the cause only as long as this is still the same table. The table may have
        been dropped after an earlier check, so every such error is raised through this method.

        Args:
            had_snapshots: Whether a table without snapshots is in the middle of a drop: this reader has seen some.
        """
        try:
            self.check_identity()
        except TableChangedError as changed:
            return changed
        return self.emptied() if had_snapshots and self.latest_id() is None else error

    def absent(self, wanted: int) -> PaimonStreamError:
        """The error for a snapshot that is not in the table: it has expired, or the table ends before it."""
        latest = self.latest_id()
        if wanted > (latest or 0):
            return self.beyond(Position(UNKNOWN_TABLE, wanted), latest)
        return self.expired(wanted)

    def expired(self, wanted: int, detail: str = "") -> PaimonStreamError:
        earliest, latest = self.earliest_id(), self.latest_id()
        if latest is None:
            return self.emptied()
        return self.diagnosed(PositionExpiredError(wanted, earliest, latest, detail))

    def begin_identity(self) -> Callable[[], None]:
        """As `check_identity`, but the request is sent at once, and the returned function waits for it and raises."""
        wanted, answer = self._directory.identity, self._directory.asked_identity()

        def check() -> None:
            try:
                identity = answer()
            except FileNotFoundError as error:
                raise TableChangedError(
                    "The table was dropped: it has no schema any more.",
                    advice="Close this stream; if the table is created again, load it and build a new stream.",
                ) from error
            if identity != wanted:
                raise TableChangedError(
                    "The table was re-created: it is not the one that this stream was built for.",
                    advice="Load the table again and build a new stream with a start of its own.",
                )

        return check

    def check_fingerprint(self, snapshot_id: int, fingerprint: str | None) -> Snapshot | None:
        """Check that a snapshot still has this fingerprint. An expired one cannot be checked.

        Returns:
            The snapshot, or None if it is missing. None also for a damaged one if there is no fingerprint to compare,
            so that a stream can begin after it.

        Raises:
            TableChangedError: Another snapshot has its id: the table was rolled back.
            CorruptTableError: The snapshot cannot be decoded, or may not be read.
        """
        if snapshot_id < 1:
            return None
        try:
            found = self._directory.snapshots.refreshed(snapshot_id)
        except CorruptTableError as error:
            if fingerprint is not None:
                raise
            text = "the stream begins after snapshot %(snapshot)d, which is damaged: %(error)s"
            self._log.warning("start_damaged", text, snapshot=snapshot_id, error=str(error))
            return None
        if found is not None and not is_same_history(fingerprint, found.fingerprint):
            raise self.another(snapshot_id)
        return found

    def check_table(self, position: Position, advice: str, option: str | None = None) -> None:
        """Check that a position belongs to this table and branch.

        Raises:
            TableChangedError: It belongs to another one; `advice` says what to do.
        """
        if position.table != self._directory.identity:
            raise TableChangedError(
                f"The position belongs to another table or branch (identity {position.table}; this one is "
                f"{self._directory.identity}), or the table was re-created since.",
                advice=advice,
                option=option,
            )

    def check_before(self, snapshot_id: int, fingerprint: str | None) -> Snapshot | None:
        """`check_fingerprint` of the snapshot before a start and `check_identity`, at the same time.

        Sends nothing before the first snapshot, which is checked when it comes.
        """
        if snapshot_id < 1:
            return None
        same_table = self.begin_identity()
        found = self.check_fingerprint(snapshot_id, fingerprint)
        same_table()
        return found

    def begin_fingerprint(self, snapshot_id: int, fingerprint: str) -> Callable[[], None]:
        """Request at once whether a snapshot that was read still has this fingerprint. Returns a function that waits
        for the answer. If the snapshot has expired, it can only check that the table is the same. It raises
        TableChangedError if another snapshot has the id or the table is another one, and CorruptTableError if the
        snapshot cannot be decoded or read.
        """
        answer = self.begin_refresh(snapshot_id)

        def check() -> None:
            found = answer()
            if found is None and self.with_changelogs:
                found = self._directory.snapshots.refreshed_changelog(snapshot_id)
            if found is None:
                self.check_identity()
            elif not is_same_history(fingerprint, found.fingerprint):
                raise self.another(snapshot_id)

        return check

    def begin_refresh(self, snapshot_id: int) -> Callable[[], Snapshot | None]:
        """Request a snapshot at once as it is in the store now. The returned function waits for it."""
        return self._directory.snapshots.begin_refresh(snapshot_id)

    def another(self, snapshot_id: int) -> PaimonStreamError:
        """The error for an id that another snapshot has now, of a re-created table or after a rollback."""
        return self.diagnosed(
            TableChangedError(
                f"The table was rolled back: snapshot {snapshot_id} is no longer the one that this stream has read. "
                f"Rows that were delivered may be gone. {OR_REPLACED}",
                advice=_UNDO,
                option="with_start",
            )
        )

    def stands(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot is still in the table: neither expired nor rolled back. One request."""
        found = self._directory.snapshots.refreshed(snapshot.id)
        return found is not None and found.is_same_commit(snapshot)

    @contextmanager
    def reading(self, *snapshots: Snapshot, changelog: bool = False) -> Iterator[None]:
        """A context that turns a missing file into the error that says whether it expired or the table is damaged.

        Of the snapshots that are read, an expired one is reported before others. `changelog`: their changelog is read;
        see `missing_file`.
        """
        try:
            yield
        except FileNotFoundError as error:
            found = [self.missing_file(each.id, error, each.fingerprint, changelog=changelog) for each in snapshots]
            raise next((each for each in found if not isinstance(each, CorruptTableError)), found[0]) from error

    def missing_file(
        self, snapshot_id: int, error: FileNotFoundError, fingerprint: str | None = None, *, changelog: bool = False
    ) -> PaimonStreamError:
        """The error for a missing file: it expired or was rolled back with its snapshot, or the table is damaged. A
        file of its `changelog` expires with the snapshot although a tag keeps its other files.
        """
        path = str(error.filename or error)
        snapshots = self._directory.snapshots
        snapshots.forget()
        found = self.available(snapshot_id)
        if found is None and not changelog:
            found = self._directory.tagged(snapshot_id)
        if found is None:
            latest = snapshots.latest_id()
            if latest is None or latest < snapshot_id:
                return self.cut_off(snapshot_id, latest)
            if self._directory.is_schema(path):
                # Schemas do not expire.
                return self._lost(path, "this schema is missing, though files of the table were written with it")
            return self.expired(snapshot_id, "It expired while it was read. ")
        if not is_same_history(fingerprint, found.fingerprint):
            return self.another(snapshot_id)
        return self._lost(path, f"this file is missing, though snapshot {snapshot_id} needs it")

    def _lost(self, path: str, what: str) -> PaimonStreamError:
        error = CorruptTableError(path, what, advice=_RESTORE)
        # The schema that shows the identity may be the one that was lost, while others are left.
        is_damage = self._directory.is_schema(path) and self._directory.exists()
        return error if is_damage else self.diagnosed(error)

    def available(self, snapshot_id: int) -> Snapshot | None:
        """A snapshot, or the long-lived changelog that is left of it."""
        return self._directory.snapshots.try_get_any(snapshot_id, self.with_changelogs)

    def found(self, snapshot_id: int) -> Snapshot | None:
        """As `available`, without the cache. One request, and another one for the changelog."""
        snapshots = self._directory.snapshots
        found = snapshots.refreshed(snapshot_id)
        return snapshots.refreshed_changelog(snapshot_id) if found is None and self.with_changelogs else found
