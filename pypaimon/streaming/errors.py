"""Every error of the streaming reader: one root, each with `retriable`, most also the builtin that one would catch."""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "***"
_SECRET_WORD = (
    r"[\w.-]*(?:secret|token|passw(?:or)?d|access[-_.]?key|account[-_.]?key|private[-_.]?key|credential|signature|"
    r"sas[-_.]key)[\w.-]*"
)
SECRET_KEY = re.compile(_SECRET_WORD, re.IGNORECASE)
"""A name of an option that holds a secret."""
_SECRETS = (
    # User and password of a URI; a port and a path that holds an @ are none.
    re.compile(r"(?<=://)[^\s/:@]*:(?!\d+(?:/|$))(?:[^\s/]+|[^\s@]+)(?=@)"),
    # An option, a parameter of a URI, or a field of JSON.
    re.compile(rf"(?<=[\s?&;,(\[{{'\"])({_SECRET_WORD}['\"]?\s?=\s?['\"]?)[^\s'\",;&)\]}}]+", re.IGNORECASE),
    re.compile(rf"(?<=['\"])({_SECRET_WORD}['\"]?\s?:\s?['\"]?)[^\s'\",;&)\]}}]+", re.IGNORECASE),
)


def without_secrets(text: str) -> str:
    """A text for people with `***` for what it holds of passwords, keys and tokens: in URIs, options and parameters."""
    found = f" {text}"
    for pattern in _SECRETS:
        found = pattern.sub(lambda match: (match[1] if match.re.groups else "") + HIDDEN, found)
    return found[1:]


class PaimonStreamError(Exception):
    """Root of all errors of this package. Its text holds no passwords, keys or tokens of paths and options.

    Attributes:
        retriable: Whether the same call may succeed later with nothing changed by the caller.
    """

    retriable: bool = False

    def __str__(self) -> str:
        return without_secrets(super().__str__())

    def __repr__(self) -> str:
        return without_secrets(super().__repr__())


class StreamConfigError(PaimonStreamError, ValueError):
    """A setting, or a combination of settings, that cannot work; raised before the first read."""


class UnsupportedTableError(PaimonStreamError):
    """The table, or an option of it, cannot be streamed; raised before the first read."""


class UnsupportedFileError(UnsupportedTableError):
    """A data file is sound, but holds what this library, or the installed pyarrow, does not read. Nothing was skipped.

    Attributes:
        path: The file.
        column: Its column; None: the file as a whole.
        detail: What it holds, and what to do.
    """

    def __init__(self, path: str, column: str | None, detail: str) -> None:
        self.path = path
        self.column = column
        self.detail = detail
        super().__init__(f"{path}{'' if column is None else f', column {column!r}'}: {detail}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.column, self.detail)


class PositionExpiredError(PaimonStreamError, LookupError):
    """The wanted snapshot is no longer in the table.

    Attributes:
        fact: What is the case, without what to do about it.
        wanted: Id of the snapshot that was to be read next.
        earliest: Id of the earliest snapshot (or long-lived changelog) that can still be read; None when there is none.
        latest: Id of the latest snapshot; None when there is none.
        earliest_needs_it: The earliest snapshot cannot be read without the wanted one: it retracts rows of that, which
            a consumer whose next snapshot is the earliest does not protect.
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
            advice = "on_expired='latest' | 'full', or keep snapshots longer: raise snapshot.time-retained."
        else:
            advice = (
                "on_expired='earliest' | 'latest' | 'full', or keep snapshots longer: raise snapshot.time-retained or "
                "changelog.time-retained, or read with a consumer id, which protects what was not yet read."
            )
        text = f"Snapshot {wanted} has expired: the table now holds snapshots {earliest} to {latest}. {detail}"
        self.fact = text.rstrip()
        super().__init__(f"{self.fact} Choose where to go on with {advice}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.wanted, self.earliest, self.latest, self.detail, self.earliest_needs_it)


class PositionBeyondLatestError(PaimonStreamError, LookupError):
    """The wanted snapshot lies beyond the next one: the table was re-created or rolled back, or the id is wrong.

    Attributes:
        fact: What is the case, without what to do about it.
        wanted: Id of the snapshot that was to be read next.
        latest: Id of the latest snapshot; None when there is none.
    """

    def __init__(self, wanted: int, latest: int | None) -> None:
        self.wanted = wanted
        self.latest = latest
        self.fact = (
            f"Snapshot {wanted} is beyond the latest snapshot ({latest}). The table was probably re-created or rolled "
            "back since this position was saved, or the position belongs to another table or branch."
        )
        super().__init__(f"{self.fact} Check the position, or start anew with with_start(...).")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.wanted, self.latest)


OR_REPLACED = "Or the store does not keep one commit from replacing another, and another program did that."
"""The second cause of a changed snapshot: not every store heeds conditions on writes, or reports that it does not."""


class TableChangedError(PaimonStreamError):
    """The table under the stream is another one: dropped, re-created or rolled back.

    Attributes:
        fact: What is the case, without what to do about it.
        advice: What to do about it in a program; empty where the fact says it.
    """

    def __init__(self, fact: str, advice: str = "") -> None:
        self.fact = fact
        self.advice = advice
        super().__init__(f"{fact} {advice}".rstrip())

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.fact, self.advice)


class SchemaChangedError(PaimonStreamError):
    """A snapshot was written with a schema whose read fields differ from the stream's.

    Attributes:
        fact: What is the case, without what to do about it.
        old: Id of the schema that the stream reads with.
        new: Id of the schema of the snapshot.
    """

    def __init__(self, old: int, new: int, detail: str) -> None:
        self.old = old
        self.new = new
        self.detail = detail
        self.fact = f"The table's schema changed from {old} to {new}: {detail}."
        super().__init__(
            f"{self.fact} Build a new stream from a freshly loaded table and continue at this position, or choose "
            "on_schema_change='follow' | 'ignore'."
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.old, self.new, self.detail)


class CorruptTableError(PaimonStreamError, OSError):
    """A file of the table is damaged, missing where it must be, or may not be read.

    Attributes:
        path: The file.
    """

    def __init__(self, path: str, detail: str) -> None:
        self.path = path
        self.detail = detail
        super().__init__(f"{path}: {detail}. Nothing was skipped; once it is repaired the stream goes on from here.")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.detail)


class ConsumerConflictError(PaimonStreamError):
    """Another reader has taken over, or removed, the consumer file of this reader; nothing was written."""


class AssignmentLostError(PaimonStreamError):
    """Some of what was to be confirmed had gone to other members of the group, who hand it out again.

    What this member still has is confirmed and saved.

    Attributes:
        slots: The slots that are gone.
    """

    def __init__(self, slots: tuple[int, ...]) -> None:
        self.slots = slots
        super().__init__(
            f"Slots {', '.join(map(str, slots))} have gone to other members of the group, before this was confirmed: "
            "they hand out its rows again. The rest is confirmed. Go on with the next batch."
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.slots,)


class StoreError(PaimonStreamError, OSError):
    """The store failed for a while and bounded retries did not help (timeouts, 5xx, resets); asking again may.

    Attributes:
        place: The bucket, or the beginning of the path, that was asked; None: it is not known.
    """

    retriable = True
    place: str | None = None


class IOTimeoutError(StoreError, TimeoutError):
    """A request did not come back within the IO timeout. Nothing was lost: the next call asks again."""


def what_fails(error: BaseException) -> str:
    """What errors of one outage have in common: the store that was asked, else their class."""
    place = error.place if isinstance(error, StoreError) else None
    return place or type(error).__name__


class TargetError(PaimonStreamError):
    """A database to which a stream is applied refused, or was not there; the plan is saved wholly, or not at all.

    It is retriable where others hold a lock, or their transaction conflicted with the one of the plan.
    """


class NullColumnError(PaimonStreamError, ValueError):
    """A column that is to become a tensor has nulls. Nothing was skipped.

    Attributes:
        column: Its name.
        nulls: How many of the batch.
    """

    def __init__(self, column: str, nulls: int) -> None:
        self.column = column
        self.nulls = nulls
        super().__init__(
            f"Column {column!r} has {nulls} nulls in a batch, which a tensor cannot hold. Give fill_nulls="
            f"{{{column!r}: ...}}, leave such rows out with with_filter('{column} IS NOT NULL'), or leave the column "
            "out with with_projection(...)."
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.column, self.nulls)


class EndOfScan(Exception):
    """The stream reached its bound, or was stopped; there is nothing more to plan."""


class TablesFailedError(PaimonStreamError):
    """A stream of a database has reached its end, but some tables could not be read to theirs.

    Attributes:
        errors: Their errors, by name of the table.
    """

    def __init__(self, errors: Mapping[str, Exception]) -> None:
        self.errors = dict(errors)
        told = "; ".join(f"{name}: {error}" for name, error in sorted(self.errors.items()))
        super().__init__(f"{len(self.errors)} tables were not read to their ends. {told}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.errors,)
