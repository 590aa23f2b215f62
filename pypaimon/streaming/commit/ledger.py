"""`CommitLedger`: which commits of a user a table already holds, so that each is made once.

A snapshot carries the user and the identifier of its commit, so snapshots show what was committed. But they expire.
Therefore two small files are written before commits: the *record*, which lists the identifiers that were found in the
snapshots up to one of them and the greatest identifier that may have been tried, and a *consumer* of the user's name,
which keeps that snapshot and all later ones from expiring. `CommitSession` decides how often they are written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from pypaimon.streaming.consumers.consumer_manager import Consumer, consumers_of
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from pypaimon.streaming.errors import QueryReusedError
from pypaimon.streaming.io.conditional_writes import Seen
from pypaimon.streaming.metadata.fingerprints import is_same_history
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory

_VERSION = 2


@dataclass(frozen=True, slots=True)
class IdRanges:
    """A set of commit identifiers as ranges: it stays small while they are consecutive."""

    # First and last number of each range, ascending, with a gap between any two
    ranges: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def of(ids: Iterable[int]) -> IdRanges:
        return IdRanges().union(ids)

    @staticmethod
    def from_pairs(value: object) -> IdRanges:
        """Read what `pairs` returned, after a round trip through JSON. Raises ValueError if it is something else."""
        if not isinstance(value, list) or not all(_is_pair(each) for each in value):
            raise ValueError(f"expected ranges of numbers, got {value!r}")
        ranges = tuple((first, last) for first, last in value)
        if any(last + 1 >= first for (_, last), (first, _) in pairwise(ranges)):
            raise ValueError(f"ranges overlap or are out of order: {value!r}")
        return IdRanges(ranges)

    def pairs(self) -> list[list[int]]:
        return [list(each) for each in self.ranges]

    @property
    def greatest(self) -> int | None:
        return self.ranges[-1][1] if self.ranges else None

    def __contains__(self, identifier: int) -> bool:
        return any(first <= identifier <= last for first, last in self.ranges)

    def union(self, ids: Iterable[int]) -> IdRanges:
        joined: list[tuple[int, int]] = []
        for first, last in sorted([*self.ranges, *((each, each) for each in ids)]):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
            else:
                joined.append((first, last))
        return IdRanges(tuple(joined))

    def newest(self, count: int) -> tuple[IdRanges, int | None]:
        """The last `count` ranges, and the greatest id that they leave out (None if they leave out none)."""
        left_out = self.ranges[:-count]
        return IdRanges(self.ranges[-count:]), left_out[-1][1] if left_out else None


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """What the ledger remembers. It stays true of the history with its fingerprint, so an older one does no harm."""

    first: int  # Snapshots before it hold no commit of the user except those in `batches`, or those up to `unknown`
    batches: IdRanges
    # Identifiers up to this one that are not in `batches` may have been committed; None: none of them was
    unknown: int | None
    attempt: int  # The greatest identifier whose commit was started, or reserved for a later one
    origin: str | None = None
    # That of the snapshot before `first`; None if there was none, or an older release wrote the file
    fingerprint: str | None = None

    def to_json(self) -> bytes:
        value = {
            "version": _VERSION,
            "first": self.first,
            "batches": self.batches.pairs(),
            "unknown": self.unknown,
            "attempt": self.attempt,
            "origin": self.origin,
            "mark": self.fingerprint,
        }
        return json.dumps(value).encode()

    @staticmethod
    def from_json(data: bytes) -> LedgerRecord:
        """Read what `to_json` wrote, in this version or version 1, which only knew the last commit. Raises ValueError
        if it is not a record.
        """
        value = json.loads(data)
        if not isinstance(value, dict) or value.get("version") not in (1, _VERSION):
            raise ValueError(f"not a record of version {_VERSION}")
        first, attempt = _number(value, "first"), _number(value, "attempt")
        if first is None or attempt is None:
            raise ValueError(f"numbers are missing in {value!r}")
        if value["version"] == 1:
            committed = _number(value, "committed")
            known = IdRanges() if committed is None else IdRanges.of([committed])
            return LedgerRecord(first, known, committed, attempt)
        batches = IdRanges.from_pairs(value.get("batches"))
        origin, fingerprint = _text(value, "origin"), _text(value, "mark")
        return LedgerRecord(first, batches, _number(value, "unknown"), attempt, origin, fingerprint)


def _is_pair(value: Any) -> bool:
    numbers = isinstance(value, list) and len(value) == 2 and all(type(each) is int for each in value)
    return numbers and bool(value[0] <= value[1])


def _number(value: dict[str, Any], name: str) -> int | None:
    found = value.get(name)
    if found is not None and type(found) is not int:
        raise ValueError(f"field {name!r} is {found!r}")
    return found


def _text(value: dict[str, Any], name: str) -> str | None:
    found = value.get(name)
    if found is not None and not isinstance(found, str):
        raise ValueError(f"field {name!r} is {found!r}")
    return found


WINDOW = 32
"""Snapshots that are requested at the same time, and those that are searched for a user without a record."""
# Bounds the record of a job whose identifiers have gaps. What is left out counts as unknown, never as
# missing.
_MAX_RANGES = 4096
_RECORD_PREFIX = "sink-"


def record_name(user: str) -> str:
    """Name of the record of a commit user, in the directory of the consumers."""
    return f"{_RECORD_PREFIX}{user}"


@dataclass(frozen=True, slots=True)
class CommitStatus:
    """What a table holds of a commit user."""

    batches: IdRanges
    # Identifiers up to this one that are not in `batches` may be in the table; None: none of them is
    unknown: int | None
    why: str
    attempt: int  # The greatest identifier whose commit was started or reserved earlier; -1 if there is none
    # The snapshot of the commit that was asked for; None if the table does not hold it, or it is not known any more
    snapshot: Snapshot | None
    examined: int  # Snapshots up to this one were examined, now or earlier; 0 if there is none
    fingerprint: str | None
    latest: Snapshot | None
    seen: Seen | None = None
    origin: str | None = None
    # The snapshot of the newest commit that was found since the record was written; None: there is none
    newest: int | None = None


class CommitLedger:
    """The ledger of one commit user in one table and branch. Calls block.

    Two writers of one user may exist for a while, as when a cluster has lost contact with the first one, and jobs that
    name their commits may run side by side. A writer that finds the record changed by another one examines the table
    again, because what it had found may have been rolled back. The first one to publish wins, see `snapshot_commit`.

    Args:
        user: Commit user: the same for the same job, also after a restart on another machine.
        origin: What counts the commits, if known: a streaming query that has an id.
    """

    def __init__(self, directory: TableDirectory, user: str, origin: str | None = None) -> None:
        self.user = user
        self._directory = directory
        self._origin = origin
        self._consumers = consumers_of(directory)

    def status(self, batch: int, new_since: int = 0) -> CommitStatus:
        """What the table holds of the user, before `batch` is committed.

        Costs a GET for the record, the latest snapshot, and a GET for each snapshot since the last commit was started.
        For a user that is new to the table, at most the last 32 snapshots are examined. Those up to `new_since` were
        examined when there was no record: the user had made none of them.
        """
        record, seen = self._look()
        self._check_origin(batch, record)
        # What this process has read may be older than the commits of another process of the user.
        self._directory.snapshots.forget()
        latest = self._directory.snapshots.get_latest_snapshot()
        found = self._unrecorded(batch, latest, new_since) if record is None else self._recorded(batch, latest, record)
        if batch in found.batches and (record is None or record.origin is None):
            # The commit may be that of another origin, which has recorded itself before it committed.
            self._check_origin(batch, self._look()[0])
        return replace(found, seen=seen, origin=None if record is None else record.origin)

    def unchanged(self, status: CommitStatus, record: LedgerRecord) -> CommitStatus | None:
        """An earlier status, if the record is still the one that was written then. One GET. None: another job has
        written the record since.
        """
        found, seen = self._look()
        return replace(status, seen=seen, attempt=record.attempt) if found == record else None

    def begin(self, batch: int, status: CommitStatus, ahead: int = 0) -> LedgerRecord:
        """Record that a commit is about to be tried, and keep the snapshots that will show its outcome. Two PUTs.

        Must have returned before the commit is tried. `status` is what `status` returned for it. Returns the record
        that was written. Raises ChangedFileError if another job has written the record since: ask for the status again.
        """
        return self._write(status, batch + ahead, status.batches)

    def assume(self, batch: int, status: CommitStatus) -> None:
        """Record that a commit is in the table, as an operator has found out. Two PUTs."""
        self._write(status, batch, status.batches.union([batch]))

    def read(self) -> LedgerRecord | None:
        """The record; None if no commit was ever started here. One GET."""
        return self._look()[0]

    def forget(self) -> None:
        """Delete the files of a user under whom nothing will be committed any more. Two DELETEs."""
        # The consumer first: if only the record were deleted, the consumer would keep snapshots that nobody needs.
        self._consumers.delete(ConsumerName(self.user))
        self._directory.store.delete(self._record_path)

    def _write(self, status: CommitStatus, batch: int, batches: IdRanges) -> LedgerRecord:
        origin, attempt = self._origin or status.origin, max(batch, status.attempt)
        batches, left_out = batches.newest(_MAX_RANGES)
        unknown = _greatest(status.unknown, left_out)
        record = LedgerRecord(status.examined + 1, batches, unknown, attempt, origin, status.fingerprint)
        # The record first: it fails if another writer has changed it, and then the consumer must stay as it is.
        self._directory.store.replace(self._record_path, record.to_json(), status.seen)
        self._consumers.write(ConsumerName(self.user), Consumer(self._kept_from(status)))
        return record

    def _kept_from(self, status: CommitStatus) -> int:
        # A copy reads its progress from its newest commit. This also keeps the last snapshot that was
        # examined, whose fingerprint shows a rollback.
        if status.newest is not None:
            return status.newest
        first = max(status.examined, 1)
        kept = None if status.seen is None else self._consumers.read(ConsumerName(self.user))
        return first if kept is None else min(first, kept.next_snapshot)

    def _check_origin(self, batch: int, record: LedgerRecord | None) -> None:
        if record is not None and self._origin is not None and record.origin not in (None, self._origin):
            raise QueryReusedError(self.user, batch)

    def _look(self) -> tuple[LedgerRecord, Seen] | tuple[None, None]:
        try:
            return self._directory.store.look(self._record_path, LedgerRecord.from_json)
        except FileNotFoundError:
            return None, None

    @property
    def _record_path(self) -> str:
        # Not `consumer-...`: Java takes every file with that prefix for a consumer, and lets consumers expire.
        return f"{self._consumers.directory}/{record_name(self.user)}"

    def _unrecorded(self, batch: int, latest: Snapshot | None, new_since: int) -> CommitStatus:
        last = 0 if latest is None else latest.id
        # Without a record the user is new, unless the file was deleted. The last snapshots would show that.
        first = max(1, last - WINDOW + 1, new_since + 1)
        snapshots = newest_first(self._directory, last, first, window=WINDOW)
        found = {each.commit_identifier: each for _, each in snapshots if each and each.commit_user == self.user}
        unknown = max(found, default=None)
        return self._status(batch, latest, found, LedgerRecord(1, IdRanges(), unknown, -1), "its record was removed")

    def _recorded(self, batch: int, latest: Snapshot | None, record: LedgerRecord) -> CommitStatus:
        before = record.first - 1
        found: dict[int, Snapshot] = {}
        rolled_back = (0 if latest is None else latest.id) < before
        for number, snapshot in newest_first(self._directory, 0 if latest is None else latest.id, max(before, 1)):
            if number == before:
                rolled_back = snapshot is not None and not is_same_history(record.fingerprint, snapshot.fingerprint)
            elif snapshot is None:
                return self._status(batch, latest, found, _uncertain(record), _gone(self.user, number))
            elif snapshot.commit_user == self.user:
                found[snapshot.commit_identifier] = snapshot
        if rolled_back:
            why = (
                f"the table was rolled back to before snapshot {before}, up to which it was examined, or recreated, or "
                "another program's commit replaced that snapshot in a store that allows it"
            )
            # The commits that the record lists may be among those that were rolled back.
            forgotten = LedgerRecord(record.first, IdRanges(), _uncertain(record).unknown, record.attempt)
            return self._status(batch, latest, found, forgotten, why)
        return self._status(batch, latest, found, record, "its record does not reach back that far")

    def _status(
        self, batch: int, latest: Snapshot | None, found: dict[int, Snapshot], record: LedgerRecord, why: str
    ) -> CommitStatus:
        return CommitStatus(
            record.batches.union(found),
            record.unknown,
            why,
            record.attempt,
            found.get(batch),
            0 if latest is None else latest.id,
            None if latest is None else latest.fingerprint,
            latest,
            newest=max((each.id for each in found.values()), default=None),
        )


def newest_first(
    directory: TableDirectory, latest: int, first: int, window: int = 1
) -> Iterator[tuple[int, Snapshot | None]]:
    """Snapshots from the latest one down to `first`; None for one that is missing.

    They are requested one, two, four, ... at most `WINDOW` at a time, because the caller mostly finds what it looks for
    in the first one.
    """
    while latest >= first:
        ids = range(latest, max(first, latest - window + 1) - 1, -1)
        found = directory.snapshots.get_snapshots_batch(ids)
        yield from ((each, found[each]) for each in ids)
        latest, window = ids[-1] - 1, min(window * 2, WINDOW)


def _uncertain(record: LedgerRecord) -> LedgerRecord:
    """The record for a table that cannot show any more what became of the commits that were started."""
    unknown = _greatest(record.unknown, record.attempt, record.batches.greatest)
    return LedgerRecord(record.first, record.batches, unknown, record.attempt)


def _greatest(*ids: int | None) -> int | None:
    return max((each for each in ids if each is not None), default=None)


def _gone(user: str, snapshot: int) -> str:
    return (
        f"its commit may have been started, and snapshot {snapshot}, which must be examined, is gone, although the "
        f"consumer '{user}' keeps it: that file was removed, or snapshots were deleted by force"
    )
