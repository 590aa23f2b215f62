"""Is the next snapshot still to come, or is the position wrong: expired, beyond the latest, of another table.

Java's rules: docs/java-semantics.md#ranges-and-expiry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pypaimon.streaming.errors import (
    OR_REPLACED,
    CorruptTableError,
    PaimonStreamError,
    PositionBeyondLatestError,
    PositionExpiredError,
    TableChangedError,
)
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory

RANGE_CHECK_INTERVAL = 16
"""Every how many polls in a row that found nothing the range is checked (`NextSnapshotFetcher`)."""


class RangeCheck:
    """Checks of a position against the snapshots that are there. Each asks the store.

    Args:
        directory: The table.
        with_changelogs: Long-lived changelogs can be followed too.
    """

    def __init__(self, directory: TableDirectory, with_changelogs: bool) -> None:
        self._directory = directory
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
        """The latest snapshot."""
        return self._directory.snapshots.latest_id()

    def check_missing(self, wanted: int) -> int | None:
        """Check why snapshot `wanted` is not there; returns if it is simply the next one to be committed.

        Returns:
            The latest snapshot, None if there is none.

        Raises:
            PositionExpiredError: It is gone.
            PositionBeyondLatestError: The table ends before it.
            TableChangedError: The table was dropped, or re-created.
            CorruptTableError: Its file is missing in the middle of others.
        """
        snapshots = self._directory.snapshots
        snapshots.forget()
        self.check_identity()
        latest = snapshots.latest_id()
        if latest is None:
            if wanted > 1:
                raise PositionBeyondLatestError(wanted, None)
            return None
        if wanted < 1:
            raise PositionExpiredError(wanted, self.earliest_id(), latest)
        if wanted > latest + 1:
            raise PositionBeyondLatestError(wanted, latest)
        if wanted == latest + 1 or self.available(wanted) is not None:
            return latest
        earliest = self.earliest_id()
        if earliest is None or wanted < earliest:
            raise PositionExpiredError(wanted, earliest, latest)
        if self.available(wanted) is None:
            raise CorruptTableError(
                snapshots.get_snapshot_path(wanted),
                f"this snapshot is missing, though the table holds snapshots {earliest} to {latest}",
            )
        return latest

    def check_reached(self, wanted: int) -> None:
        """Check that the table has come to a snapshot, or is about to; it may have expired since.

        Raises:
            PositionBeyondLatestError: The table ends before.
        """
        latest = self._directory.snapshots.latest_id()
        if wanted > (latest or 0) + 1:
            raise PositionBeyondLatestError(wanted, latest)

    def check_identity(self) -> None:
        """Check that this is still the table that the stream was built for.

        Raises:
            TableChangedError: It was dropped, or re-created.
        """
        self.begin_identity()()

    def begin_identity(self) -> Callable[[], None]:
        """As `check_identity`, asked for at once: the call that is returned waits for the answer, and raises."""
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
        """Check that a snapshot is still the one with this fingerprint; one that has expired cannot tell.

        Returns:
            The snapshot, if it is there; None also for a damaged one without a fingerprint to hold it against, so that
            a stream can begin behind it.

        Raises:
            TableChangedError: Another snapshot has its id: the table was rolled back.
            CorruptTableError: It cannot be decoded, or may not be read.
        """
        if snapshot_id < 1:
            return None
        try:
            found = self._directory.snapshots.refreshed(snapshot_id)
        except CorruptTableError as error:
            if fingerprint is not None:
                raise
            text = "the stream begins behind snapshot %(snapshot)d, which is damaged: %(error)s"
            self._log.warning("start_damaged", text, snapshot=snapshot_id, error=str(error))
            return None
        if found is not None and not is_same_history(fingerprint, found.fingerprint):
            raise self.another(snapshot_id)
        return found

    def check_before(self, snapshot_id: int, fingerprint: str | None) -> Snapshot | None:
        """As `check_fingerprint` of the snapshot before a start, and `check_identity` at the same time.

        Before the first snapshot there is none, and nothing is asked: that one is held against the table when it comes.
        """
        if snapshot_id < 1:
            return None
        same_table = self.begin_identity()
        found = self.check_fingerprint(snapshot_id, fingerprint)
        same_table()
        return found

    def begin_fingerprint(self, snapshot_id: int, fingerprint: str) -> Callable[[], None]:
        """Ask at once whether a snapshot that was read still is the one with this fingerprint.

        Returns:
            Waits for the answer. Of a snapshot that has expired it checks that the table still is the same: no more can
            be told.

        Raises:
            TableChangedError: By that call: another snapshot has its id, or the table is another one.
            CorruptTableError: By that call: it cannot be decoded, or may not be read.
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
        """Ask at once for a snapshot as it is in the store now; the call that is returned waits for it."""
        return self._directory.snapshots.begin_refresh(snapshot_id)

    def another(self, snapshot_id: int) -> TableChangedError:
        """The error for a snapshot id that another snapshot now carries: of a table made anew, or after a rollback."""
        try:
            self.check_identity()
        except TableChangedError as error:
            return error
        return rolled_back(snapshot_id)

    def stands(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot is still in the table: neither expired nor rolled back. One request."""
        found = self._directory.snapshots.refreshed(snapshot.id)
        return found is not None and found.fingerprint == snapshot.fingerprint

    @contextmanager
    def reading(self, *snapshots: Snapshot, changelog: bool = False) -> Iterator[None]:
        """Tell a manifest that expired, or was rolled back, with its snapshot from one that a damaged table lacks.

        Args:
            snapshots: What is read, one that is gone told before others.
            changelog: It is their changelog; see `missing_file`.
        """
        try:
            yield
        except FileNotFoundError as error:
            found = [self.missing_file(each.id, error, each.fingerprint, changelog=changelog) for each in snapshots]
            raise next((each for each in found if not isinstance(each, CorruptTableError)), found[0]) from error

    def missing_file(
        self,
        snapshot_id: int,
        error: FileNotFoundError,
        fingerprint: str | None = None,
        *,
        changelog: bool = False,
    ) -> PaimonStreamError:
        """The error for a missing file: it expired or was rolled back with its snapshot, or the table is damaged.

        Args:
            snapshot_id: The snapshot that needs it.
            error: Names the file.
            fingerprint: Of the snapshot, if known.
            changelog: The file is one of its changelog, which goes with the snapshot though a tag keeps the rest.
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
                return self.another(snapshot_id)
            if self._directory.is_schema(path):
                # Schemas do not expire.
                return CorruptTableError(path, "this schema is missing, though files of the table were written with it")
            return PositionExpiredError(snapshot_id, self.earliest_id(), latest, "It expired while it was read. ")
        if not is_same_history(fingerprint, found.fingerprint):
            return self.another(snapshot_id)
        return CorruptTableError(path, f"this file is missing, though snapshot {snapshot_id} needs it")

    def available(self, snapshot_id: int) -> Snapshot | None:
        """A snapshot, or the long-lived changelog that is left of it."""
        return self._directory.snapshots.try_get_any(snapshot_id, self.with_changelogs)

    def found(self, snapshot_id: int) -> Snapshot | None:
        """As `available`, as it is in the store now. One request, another one for the changelog."""
        snapshots = self._directory.snapshots
        found = snapshots.refreshed(snapshot_id)
        return snapshots.refreshed_changelog(snapshot_id) if found is None and self.with_changelogs else found


def is_same_history(saved: str | None, found: str | None) -> bool:
    """Whether a snapshot is the one that a follower has read, by their fingerprints; one that is not known agrees.

    The one comparison behind positions, consumers, shards, groups, targets and checkpoints. What each of them knows of
    the snapshot before its next one is held against the table before a row of the next one is handed out.
    """
    return saved is None or found is None or saved == found


def rolled_back(snapshot_id: int) -> TableChangedError:
    """The error for a snapshot id that another snapshot now carries."""
    return TableChangedError(
        f"The table was rolled back: snapshot {snapshot_id} is no longer the one that this stream has read. "
        f"Rows that were delivered may be gone. {OR_REPLACED}",
        advice="Decide what to undo, then choose another start with with_start(...), or reset the consumer or group.",
        option="with_start",
    )
