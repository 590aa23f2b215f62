"""`CommitMaintenance`: maintains a table after commits, as Java's writers do, but never in the way of one.

A run of `maintain` lists the table, and reads what keeps its files, except for what a commit or a run of this process
has read before. So it is made for a tenth of the snapshots at a time, and its share of each commit stays about the same
however many are kept. A tenth, because files beyond those that are needed are then less than a fifth of these, also
where a compaction replaces many at once. To find out whether that many can expire takes a listing and the time of one
snapshot. Until that snapshot is old enough, and enough commits have followed it, nothing is requested.

Automatic tags that are due are created meanwhile: the first commit looks for them, and then one after each period.
Partitions, consumers and the like, which are due as time passes, get a run each hour (`hourly_turn`).

Several writers need not agree which one of them maintains the table: each looks again before it runs, and finds that
another one has just done it. If two run at the same moment, that is safe.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from pypaimon.streaming.concurrency.background_threads import BackgroundThread
from pypaimon.streaming.concurrency.backoff import Backoff
from pypaimon.streaming.concurrency.cancel_scope import CancelScope
from pypaimon.streaming.concurrency.clock import until_done
from pypaimon.streaming.consumers.consumer_manager import consumers_of
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.maintenance.automatic_tags import PeriodTags, automatic_tags
from pypaimon.streaming.maintenance.hourly_turn import HourlyTurn
from pypaimon.streaming.maintenance.maintain import run_once
from pypaimon.streaming.maintenance.plan import MaintenanceReport
from pypaimon.streaming.maintenance.policy import KeepRules, MaintenancePolicy
from pypaimon.streaming.maintenance.seen_files import SeenFiles
from pypaimon.streaming.maintenance.tag_operations import create_due_tags
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.arguments import finite_seconds

_LOG = StreamLog(__name__)

When = Literal["off", "auto"]

_FEWEST, _SHARE = 6, 10
"""Snapshots that a run expires: at least this number, and one of this many of all."""
_HELD = 10
"""Commits after which a consumer that holds snapshots back is looked at again."""
_HOUR, _MINUTE = 3600.0, 60.0
_BY_TIME = (
    option_keys.CONSUMER_EXPIRATION_TIME,
    option_keys.PARTITION_EXPIRATION_TIME,
    option_keys.PARTITION_IDLE_TIME_TO_DONE,
    option_keys.TAG_AUTOMATIC_CREATION,
    option_keys.TAG_DEFAULT_TIME_RETAINED,
)
"""Options by which something is due as time passes, whether or not snapshots expire."""


def is_automatic_maintenance(what: str, value: Any) -> bool:
    """Whether an argument asks for maintenance after commits.

    Raises:
        StreamConfigError: It is neither `"off"` nor `"auto"`.
    """
    if value not in ("off", "auto"):
        raise StreamConfigError(f"{what}: expected 'off' or 'auto', got {value!r}.")
    return bool(value == "auto")


def maintenance_of(table: PaimonTable) -> CommitMaintenance | None:
    """The maintenance after commits of a writer; None: another job does it, since the table is `write-only`."""
    return None if option_keys.WRITE_ONLY.of(table.options) else CommitMaintenance(table)


@dataclass(frozen=True, slots=True)
class _Bound:
    """The snapshot whose age and number decide whether those before it are worth a run.

    Attributes:
        id: Its id; perhaps of a snapshot that does not exist yet.
        millis: When it was committed; None: not known.
    """

    id: int
    millis: int | None = None


class CommitMaintenance:
    """Maintenance that commits of one writer start, on a thread of its own, at most one run at a time.

    Attributes:
        last_report: The report of the last run that succeeded; None before the first one has ended.
        last_error: The error of the last run, which has been logged; None if it succeeded.
    """

    def __init__(
        self,
        table: PaimonTable,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._table = table
        self._rules = KeepRules.of(MaintenancePolicy(), table.options)
        self._clock = clock
        self._expires = option_keys.SNAPSHOT_EXPIRE_LIMIT.of(table.options) > 0
        times = [key.of(table.options) for key in _BY_TIME]
        self._is_by_time = any(each not in (None, "none") for each in times)
        self._turn, self._timed_run = HourlyTurn(), 0.0
        self._tags = automatic_tags(table)
        self._tag_look = math.inf if self._tags is None else 0.0
        self._bound: _Bound | None = None
        self._next_id = 0
        self._last_id: int | None = None
        self._failures, self._paused_until = 0, 0.0
        self._seen = SeenFiles()
        self._scope = CancelScope()
        self._running: Future[None] | None = None
        self.last_report: MaintenanceReport | None = None
        self.last_error: Exception | None = None

    def after_commit(self, snapshot_id: int, first_kept: int | None = None) -> None:
        """Start a run on another thread if one may be due. Makes no requests, and raises nothing.

        Args:
            snapshot_id: The snapshot of the commit.
            first_kept: The first snapshot that the writer itself keeps, by the consumer of its commit user; None: it
                keeps none.
        """
        is_running = self._running is not None and not self._running.done()
        if is_running or not self._may_be_due(snapshot_id, first_kept):
            return
        ended: Future[None] = Future()
        self._running = ended
        try:
            BackgroundThread(self._run, "paimon-maintenance", self._scope.cancel, snapshot_id, ended).start()
        except RuntimeError:
            # No thread can start while the interpreter exits.
            ended.set_result(None)

    def close(self, *, finish: bool = True, timeout: float | timedelta | None = None) -> None:
        """Wait until a run has ended. Idempotent.

        Args:
            finish: Let it finish. Otherwise it is stopped, and a later run finishes what it had begun.
            timeout: Stop it if it takes longer (seconds, or a timedelta); None: wait.
        """
        running = self._running
        if running is None:
            return
        last = math.inf if timeout is None else time.monotonic() + finite_seconds("close: timeout", timeout)
        try:
            if not finish or not until_done(running, lambda: time.monotonic() > last):
                self._scope.cancel()
                until_done(running, lambda: False)
        except BaseException:
            # Ctrl-C during the wait.
            self._scope.cancel()
            raise

    # ---- Whether a run is due

    def _may_be_due(self, snapshot_id: int, first_kept: int | None) -> bool:
        """Decide from what is known, without a request."""
        if self._clock() < self._paused_until:
            return False
        return self._is_timed_run_due() or self._are_tags_due() or self._may_expire(snapshot_id, first_kept)

    def _is_timed_run_due(self) -> bool:
        return self._is_by_time and self._clock() >= self._timed_run

    def _takes_timed_run(self) -> bool:
        """Whether a run by time is due, and no other process has made it."""
        if not self._is_timed_run_due():
            return False
        later = self._turn.take(self._table.new_directory(), self._clock())
        self._timed_run = self._timed_run if later is None else later
        return later is None

    def _are_tags_due(self) -> bool:
        return self._clock() >= self._tag_look

    def _may_expire(self, latest: int, first_kept: int | None) -> bool:
        """Whether the snapshots before the bound may expire, as far as it is known."""
        bound, rule = self._bound, self._rules.snapshots
        if not self._expires or latest < self._next_id:
            return False
        if bound is None:
            return True
        if first_kept is not None and bound.id > first_kept:
            return False
        kept = latest - bound.id + 1
        if kept < rule.least:
            return False
        if kept >= rule.most or bound.millis is None:
            return True
        return bound.millis < self._clock() * 1000 - rule.millis

    def _look(self, latest: int) -> bool:
        """Look at the table for the next bound. Returns whether the snapshots before it can expire now."""
        directory = self._table.new_directory()
        ids = directory.snapshots.list_ids()
        if not ids:
            return False
        size = max(_FEWEST, len(ids) // _SHARE)
        if size >= len(ids):
            self._bound = _Bound(ids[0] + size)
            return False
        snapshot = directory.snapshots.try_get(ids[size])
        self._bound = _Bound(ids[size], None if snapshot is None else snapshot.time_millis)
        if snapshot is None or not self._may_expire(max(ids[-1], latest), None):
            return False
        first_kept = min((each.next_snapshot - 1 for each in consumers_of(directory).infos()), default=None)
        if first_kept is not None and first_kept < self._bound.id and not self._rules.changelog_only:
            # A consumer holds them back.
            self._next_id = ids[-1] + _HELD
            return False
        return True

    # ---- A run

    def _run(self, snapshot_id: int, ended: Future[None]) -> None:
        try:
            with self._scope.entered():
                if self._takes_timed_run() or (self._may_expire(snapshot_id, None) and self._look(snapshot_id)):
                    self._maintain(snapshot_id)
                elif self._are_tags_due():
                    self.last_report = create_due_tags(self._table) or self.last_report
                self._plan_tag_look()
            self._failures, self.last_error = 0, None
        except CancelledError:
            pass
        except Exception as error:  # noqa: BLE001 - the commit has succeeded, and says so
            self.last_error = error
            self._failures += 1
            self._paused_until = self._clock() + Backoff().pause(self._failures)
            text = "%(table)s: maintenance after a commit failed (attempt %(attempt)d), and is tried again: %(error)s"
            name = self._table.name
            what, attempt = f"maintenance of {name}", self._failures
            _LOG.outage("maintenance_failed", text, what, table=name, attempt=attempt, error=str(error))
        finally:
            ended.set_result(None)

    def _maintain(self, snapshot_id: int) -> None:
        limit = self._limit(snapshot_id)
        self.last_report = report = run_once(self._table, MaintenancePolicy(expire_limit=limit), self._seen)
        self._timed_run, self._last_id = self._clock() + _HOUR, snapshot_id
        plan = report.plan
        if plan.earliest_id is None or plan.latest_id is None:
            return
        size = max(_FEWEST, (plan.latest_id - plan.earliest_id + 1) // _SHARE)
        self._bound = _Bound(plan.earliest_id + size)
        # If the limit has ended the run, the next commit continues.
        self._next_id = 0 if len(plan.snapshot_ids) == limit else plan.latest_id + size

    def _plan_tag_look(self) -> None:
        """Decide when tags are looked for next. A late look creates the same tags: it sees all snapshots since."""
        now = self._clock()
        if self._tags is None or now < self._tag_look:
            return
        if not isinstance(self._tags, PeriodTags):
            # The tag of the day is moved: by the first commit of a program, which is the only one of a batch job.
            self._tag_look = now + _HOUR
            return
        due = self._tags.next_due_millis(self._table.new_directory().tag_names())
        self._tag_look = now + _MINUTE if due is None else max(due / 1000, now + _MINUTE)

    def _limit(self, snapshot_id: int) -> int | None:
        """Snapshots that a run expires at most: what the table allows a commit, for each since the last run."""
        options = self._table.options
        if not option_keys.SNAPSHOT_EXPIRE_LIMIT.set_as(options):
            return None
        commits = 1 if self._last_id is None else max(1, snapshot_id - self._last_id)
        return option_keys.SNAPSHOT_EXPIRE_LIMIT.of(options) * commits
