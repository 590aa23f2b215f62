"""Every error of the package: what is wrong, what to do about it, and whether the same call may succeed later.

All are in one file, however long, so that a caller finds what there is to catch in one place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pypaimon.streaming.redaction import without_secrets

E = TypeVar("E", bound=BaseException)

__all__ = [
    "AssignmentLostError",
    "BadChangeError",
    "BadRowError",
    "CommitConflictError",
    "CommitFailedError",
    "CommitUnknownError",
    "ConsumerConflictError",
    "CorruptTableError",
    "EndOfScan",
    "IOTimeoutError",
    "MaintenanceConflictError",
    "NullColumnError",
    "OpenTableError",
    "PaimonStreamError",
    "PositionBeyondLatestError",
    "PositionExpiredError",
    "SchemaChangeRefusedError",
    "SchemaChangedError",
    "SchemaMismatchError",
    "StoreError",
    "StreamConfigError",
    "StrictModeError",
    "TableChangedError",
    "TablesFailedError",
    "TargetError",
    "UnsupportedFileError",
    "UnsupportedTableError",
    "WaitTimeoutError",
    "WriterClosedError",
    "WriterConflictError",
]
"""The public errors. The others are raised as what they are derived from, or never leave the library."""


class PaimonStreamError(Exception):
    """Root of all errors of this package. Its text hides passwords, keys and tokens of paths and options.

    Attributes:
        message: What is wrong.
        advice: What to do about it, in terms of the Python API; None if the message says enough.
        option: The method or argument that the advice, or the beginning of the message, names, such as
            `with_projection`. The command line and Spark name their own option in its place.
        retriable: Whether the same call may succeed later with nothing changed by the caller.
    """

    retriable: bool = False

    def __init__(self, message: str = "", *, advice: str | None = None, option: str | None = None) -> None:
        self.message = message
        self.advice = advice
        self.option = option
        super().__init__(message if advice is None else f"{message} {advice}")

    def __str__(self) -> str:
        return without_secrets(super().__str__())

    def __repr__(self) -> str:
        return without_secrets(super().__repr__())

    def __reduce__(self) -> tuple[object, ...]:
        # Not by calling the class with `args`, as exceptions do: these hold the text, and most classes take facts.
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[E], args: tuple[Any, ...], state: Mapping[str, Any]) -> E:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


# ---- Settings, and tables that cannot be read


class StreamConfigError(PaimonStreamError, ValueError):
    """A setting, or a combination of settings, that cannot work; raised before the first read."""


class OtherColumnsError(StreamConfigError):
    """A target's rows cannot follow the columns of their table. A target that may replace them starts over."""


class NoDatabaseError(StreamConfigError):
    """The catalog lacks a database of this name."""


class OpenTableError(PaimonStreamError):
    """The table is missing, or its catalog, its store or its bucket, or it may not be read."""


class UnsupportedTableError(PaimonStreamError):
    """The table, or one of its options, cannot be streamed; raised before the first read."""


class UnsupportedContentError(UnsupportedTableError):
    """A file holds something that is not supported. Callers that know the file raise `UnsupportedFileError` for it.

    Attributes:
        column: The column of the file; None if it is the file as a whole.
    """

    def __init__(self, message: str, column: str | None = None) -> None:
        self.column = column
        super().__init__(message)


class UnsupportedFileError(UnsupportedTableError):
    """A sound data file holds something that this library, or the installed pyarrow, cannot read. No row was skipped.

    Attributes:
        path: The file.
        column: The column; None if it is the file as a whole.
        detail: What the file holds, and what to do.
    """

    def __init__(self, path: str, column: str | None, detail: str) -> None:
        self.path = path
        self.column = column
        self.detail = detail
        super().__init__(f"{path}{'' if column is None else f', column {column!r}'}: {detail}")


# ---- Positions, and tables that changed under the stream


class PositionExpiredError(PaimonStreamError, LookupError):
    """The wanted snapshot is no longer in the table.

    Attributes:
        wanted: Id of the snapshot that was to be read next.
        earliest: Id of the earliest snapshot (or long-lived changelog) that can still be read; None if there is none.
        latest: Id of the latest snapshot; None if there is none.
        earliest_needs_it: Whether the earliest snapshot retracts rows of the wanted one, and so cannot be read without
            it. A consumer whose next snapshot is the earliest one does not protect the one before.
    """

    def __init__(
        self,
        wanted: int,
        earliest: int | None,
        latest: int | None,
        detail: str = "",
        earliest_needs_it: bool = False,
    ) -> None:
        self.wanted = wanted
        self.earliest = earliest
        self.latest = latest
        self.detail = detail
        self.earliest_needs_it = earliest_needs_it
        if earliest_needs_it:
            choices, keep = "on_expired='latest' | 'full'", "raise snapshot.time-retained."
        else:
            choices = "on_expired='earliest' | 'latest' | 'full'"
            keep = (
                "raise snapshot.time-retained or changelog.time-retained, or read with a consumer id, which protects "
                "unread snapshots."
            )
        message = f"Snapshot {wanted} has expired: the table now holds snapshots {earliest} to {latest}. {detail}"
        advice = f"Choose where to continue with {choices}, or keep snapshots longer: {keep}"
        super().__init__(message.rstrip(), advice=advice, option="with_on_expired")


class PositionBeyondLatestError(PaimonStreamError, LookupError):
    """The wanted snapshot is beyond the next one: the table was re-created or rolled back, or the id is wrong.

    Attributes:
        wanted: Id of the snapshot that was to be read next.
        latest: Id of the latest snapshot; None if there is none.
    """

    def __init__(self, wanted: int, latest: int | None, is_batch: bool = False) -> None:
        self.wanted = wanted
        self.latest = latest
        text = f"Snapshot {wanted} is beyond the latest snapshot ({latest})."
        if is_batch:
            super().__init__(
                f"{text} The table may have been rolled back, or is being dropped.", advice="Choose an earlier one."
            )
            return
        super().__init__(
            f"{text} The table was probably re-created or rolled back since this position was saved, or is being "
            "dropped, or the position belongs to another table or branch.",
            advice="Check the position, or choose another start with with_start(...).",
            option="with_start",
        )


OR_REPLACED = "Or the store does not keep one commit from replacing another, and another program did that."
"""The second cause of a changed snapshot: some stores ignore conditions on writes without an error."""


class TableChangedError(PaimonStreamError):
    """The table under the stream is another one: dropped, re-created or rolled back."""


class SchemaChangedError(PaimonStreamError):
    """A snapshot was written with a schema whose read fields differ from the stream's.

    Attributes:
        old: Id of the schema that the stream reads with.
        new: Id of the schema of the snapshot.
    """

    def __init__(self, old: int, new: int, detail: str) -> None:
        self.old = old
        self.new = new
        self.detail = detail
        super().__init__(
            f"The table's schema changed from {old} to {new}: {detail}.",
            advice="Build a new stream from a freshly loaded table and continue at this position, or choose "
            "on_schema_change='follow' | 'ignore'.",
            option="with_on_schema_change",
        )


class CorruptTableError(PaimonStreamError, OSError):
    """A file of the table is damaged, is missing although the table needs it, or may not be read.

    Attributes:
        path: The file.
    """

    def __init__(self, path: str, detail: str, *, advice: str | None = None) -> None:
        self.path = path
        self.detail = detail
        super().__init__(
            f"{path}: {detail}. Nothing was skipped.",
            advice=advice or "Once the file is repaired the stream continues at this position.",
        )


# ---- Progress that readers share


class ConsumerConflictError(PaimonStreamError):
    """Another reader has taken over, or removed, the consumer file of this reader; nothing was written."""


class AssignmentLostError(PaimonStreamError):
    """Some slots of a batch were reassigned before it was confirmed. Their new owners hand out its rows again.

    The slots that this member still owns are confirmed and saved.

    Attributes:
        slots: The slots that were lost.
    """

    def __init__(self, slots: tuple[int, ...]) -> None:
        self.slots = slots
        super().__init__(
            f"Slots {', '.join(map(str, slots))} were reassigned to other members of the group before this batch was "
            "confirmed: these members hand out its rows again. The other slots are confirmed.",
            advice="Continue with the next batch.",
        )


# ---- Stores and targets that fail


class StoreError(PaimonStreamError, OSError):
    """The store failed (timeouts, 5xx, resets), and bounded retries did not help. A later call may succeed.

    Attributes:
        place: The bucket, or the beginning of the path, that was asked; None if it is not known.
    """

    retriable = True
    place: str | None = None


class IOTimeoutError(StoreError, TimeoutError):
    """A request did not return within the IO timeout. Nothing was lost: the next call repeats it."""


class WaitTimeoutError(PaimonStreamError, TimeoutError):
    """The awaited snapshot did not come in time. Nothing was lost: make the same call again."""

    retriable = True


def what_fails(error: BaseException) -> str:
    """What the errors of one outage have in common: the store that was asked, otherwise their class."""
    place = error.place if isinstance(error, StoreError) else None
    return place or type(error).__name__


class TargetError(PaimonStreamError):
    """The target's database refused a plan, or was not reachable; the plan is saved as a whole, or not at all.

    Retriable if others hold a lock, or their transaction conflicted with that of the plan.
    """


class NullColumnError(PaimonStreamError, ValueError):
    """A column that is to become a tensor has nulls. Nothing was skipped.

    Attributes:
        column: Name of the column.
        nulls: How many values of the batch are null.
    """

    def __init__(self, column: str, nulls: int) -> None:
        self.column = column
        self.nulls = nulls
        super().__init__(
            f"Column {column!r} has {nulls} nulls in a batch, which a tensor cannot hold.",
            advice=f"Give fill_nulls={{{column!r}: ...}}, leave such rows out with with_filter('{column} IS NOT NULL'),"
            " or leave the column out with with_projection(...).",
            option="fill_nulls",
        )


# ---- Streams of databases


class NoSnapshotYetError(StoreError):
    """The table of a group has no snapshot where a stream could begin. A StoreError, so that the member tries again."""


class TableMissingError(PaimonStreamError):
    """A table is missing from the listing of its database.

    Attributes:
        table: Name of the table.
    """

    def __init__(self, table: str) -> None:
        self.table = table
        super().__init__(
            f"Table {table} is missing from the listing. The next listing shows whether it was dropped or renamed."
        )


class TablesFailedError(PaimonStreamError):
    """A call for the tables of a database has ended, but some of them could not be read to the end, or maintained.

    Attributes:
        errors: The error of each of these tables, by name.
    """

    def __init__(self, errors: Mapping[str, Exception], done: str = "read to the end") -> None:
        self.errors = dict(errors)
        listed = "; ".join(f"{name}: {error}" for name, error in sorted(self.errors.items()))
        super().__init__(f"{len(self.errors)} tables were not {done}. {listed}")


# ---- Rows that are written


class SchemaMismatchError(PaimonStreamError, ValueError):
    """The written columns do not fit the table; nothing of the call was written."""


class BadRowError(PaimonStreamError, ValueError):
    """A row does not fit the table: a null in a NOT NULL column, a value that would be cut, an unknown row kind."""


class BadChangeError(PaimonStreamError, ValueError):
    """A change record that cannot become rows of the table. Nothing of the call was written.

    Attributes:
        record: Which record of the call, from 1.
        column: The column, or the field of the record, that is at fault; None if it is the record as a whole.
        detail: What is wrong with it.
    """

    def __init__(
        self, record: int, column: str | None, detail: str, *, advice: str | None = None, option: str | None = None
    ) -> None:
        self.record = record
        self.column = column
        self.detail = detail
        message = f"Change record {record}{f', column {column!r}' if column is not None else ''}: {detail}"
        super().__init__(message, advice=advice, option=option)


class SchemaChangeRefusedError(PaimonStreamError):
    """The catalog refused to alter the table for the columns of change records. Nothing of the call was written."""


class WriterClosedError(PaimonStreamError):
    """The writer has ended: it was closed, failed or was cancelled, or belongs to the parent of a forked process.

    Open a new writer under the same commit user; its `last_committed` shows what the table holds.
    """


class WriterConflictError(PaimonStreamError):
    """Another writer has committed under the same commit user, or keys of a table with dynamic buckets.

    This commit is not visible, and the writer has ended.
    """


class MaintenanceConflictError(PaimonStreamError):
    """Something that maintenance decided by has changed meanwhile: a tag, a branch, a consumer. Nothing was deleted."""

    retriable = True

    def __init__(self, table: str, what: str) -> None:
        super().__init__(f"{table}: {what}.", advice="Run it again.")


# ---- Commits


class CommitFailedError(PaimonStreamError):
    """A commit failed, or its outcome is not known. Repeating it under its identifier finds out which."""

    retriable = True


class UnsafeCommitError(CommitFailedError):
    """Another program commits to the table at the same time, and the store cannot keep the two apart."""

    retriable = False


class CommitConflictError(PaimonStreamError):
    """Files that the commit changes are no longer in the table, or are there already; nothing was committed.

    Another job rewrote or deleted them. Plan the work again from the latest snapshot.
    """


class KeyIndexConflictError(CommitConflictError):
    """Keys were assigned to buckets by index files that the table no longer has; nothing was committed."""


class StrictModeError(PaimonStreamError):
    """Another user's snapshot since the last safe one forbids the commit; nothing was committed.

    Attributes:
        snapshot: Id of that snapshot.
    """

    def __init__(self, snapshot: int, what: str) -> None:
        self.snapshot = snapshot
        self._what = what
        super().__init__(
            f"Snapshot {snapshot} {what}, and 'commit.strict-mode.last-safe-snapshot' is set. Nothing was committed.",
            advice="Plan the work again from the latest snapshot, and name that one as the last safe one, or leave the "
            "option out.",
        )


class CommitUnknownError(PaimonStreamError):
    """Whether a commit is in the table cannot be found out: the evidence has been deleted, or was never recorded.

    Attributes:
        user: Commit user.
        batch: Commit identifier.
        why: Which evidence is missing, and why.
    """

    def __init__(self, user: str, batch: int, why: str) -> None:
        self.user = user
        self.batch = batch
        self.why = why
        super().__init__(
            f"Commit {batch} of '{user}' may be in the table or not: {why}. Nothing was committed.",
            advice="Look whether its rows are in the table. If they are, continue with later identifiers; if they are "
            "not, write them under another commit user.",
        )


class BatchOrderError(PaimonStreamError):
    """A commit came after a later one of the same user; nothing was committed.

    Attributes:
        user: Commit user.
        batch: Commit identifier.
        later: The later identifier, which is in the table.
    """

    def __init__(self, user: str, batch: int, later: int) -> None:
        self.user = user
        self.batch = batch
        self.later = later
        super().__init__(
            f"Commit {batch} of '{user}' is not in the table, but the later commit {later} is. Nothing was committed.",
            advice="The commits of a user follow each other: another writer has committed under this user, or this one "
            "was set back. End one of them, or give each a user of its own.",
        )


class QueryReusedError(PaimonStreamError):
    """Commits of two origins used one commit user, so their numbers mean nothing; nothing was committed.

    Attributes:
        user: Commit user.
        batch: Commit identifier.
    """

    def __init__(self, user: str, batch: int) -> None:
        self.user = user
        self.batch = batch
        super().__init__(
            f"Commit {batch} of '{user}' comes from another origin than the commits before it, so that it cannot be "
            "distinguished from an earlier one of the same number. Nothing was committed.",
            advice="Give each origin a commit user of its own.",
        )


class EndOfScan(Exception):
    """The stream has reached its end, or was stopped; there is nothing more to plan."""
