"""`PlannerLog`: the log lines of a planner: where it begins, what it does with each snapshot, where it ends."""

from __future__ import annotations

from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.model.plan import Plan
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.start import Start
from pypaimon.streaming.options.stream_options import OnOverwrite
from pypaimon.streaming.paimon.handles import ReadableTable
from pypaimon.streaming.planning.planner_state import Following, ReadingFull, Starting, Step


class PlannerLog:
    """The log lines of one planner. A step that is taken again does not log a start, wait or end again.

    Args:
        table: pypaimon's table.
    """

    def __init__(self, table: ReadableTable) -> None:
        self._log = StreamLog.of(__name__, table)
        self._last: object = None
        self._warned_of_overwrite = False

    def consumer_opened(self, consumer: str, saved: int | None, *, used: bool) -> None:
        """A reader took over the file of its consumer; `used`: it resumes at the saved snapshot."""
        found = "has saved nothing" if saved is None else "has saved snapshot %(snapshot)d as its next"
        text = f"consumer %(consumer)s {found}; the stream {'resumes there' if used else 'uses its own start'}"
        self._log.info("consumer_opened", text, consumer=consumer, snapshot=saved, used=used)

    def start_lost(self, position: Position, error: Exception) -> None:
        """A start that was found before is gone, and is searched again."""
        text = "the start at snapshot %(snapshot)d is gone before progress was saved; finding a new one: %(error)s"
        self._log.warning("start_lost", text, snapshot=position.snapshot, error=str(error))

    def waiting(self) -> None:
        if self._is_news("waiting"):
            self._log.info("waiting", "no snapshot yet: the stream waits for the first commit")

    def begun(self, start: Start, found: ReadingFull | Following) -> None:
        full = isinstance(found, ReadingFull)
        snapshot = found.snapshot.id if isinstance(found, ReadingFull) else found.next_id
        if self._is_news(("start", start, snapshot)):
            what = "with the full state of" if full else "before"
            text = f"the stream begins {what} snapshot %(snapshot)d (start mode %(mode)s)"
            self._log.info("start", text, snapshot=snapshot, full=full, mode=start.mode.value)

    def resumed(self, position: Position) -> None:
        if self._is_news(position):
            text = f"the stream resumes {'inside' if position.is_inside else 'before'} snapshot %(snapshot)d"
            self._log.info(
                "resume", text, snapshot=position.snapshot, phase=position.phase.value, inside=position.unit is not None
            )

    def stepped(self, step: Step) -> None:
        """A step was taken. With prefetch its plan may still be dropped."""
        if step.plan is not None:
            self._planned(step.plan, None if step.begins is None else step.begins.snapshot)
        if step.state.ended:
            self._ended(None if isinstance(step.state, Starting) else step.state.next_id)

    def _planned(self, plan: Plan, first: int | None) -> None:
        text = "snapshot %(snapshot)d is a plan of kind %(kind)s with %(splits)d splits"
        self._log.debug(
            "plan", text, snapshot=plan.snapshot_id, first=first, kind=plan.kind.value, splits=len(plan.splits())
        )

    def passed_over(self, snapshot: Snapshot, policy: OnOverwrite | None) -> None:
        commit = str(snapshot.commit_kind)
        if snapshot.overwrites_rows and policy is None and not self._warned_of_overwrite:
            self._warned_of_overwrite = True
            text = "snapshot %(snapshot)d overwrites data and is passed over as in Java; with_on_overwrite(...) chooses"
            self._log.warning("overwrite_passed_over", text, snapshot=snapshot.id)
        else:
            text = "snapshot %(snapshot)d is passed over: %(commit)s"
            self._log.debug("passed_over", text, snapshot=snapshot.id, commit=commit)

    def schema_followed(self, old: int, new: int, snapshot: Snapshot) -> None:
        text = "from snapshot %(snapshot)d on the stream reads with schema %(new)d, before with schema %(old)d"
        self._log.info("schema_followed", text, snapshot=snapshot.id, old=old, new=new)

    def expired(self, wanted: int, start: Start) -> None:
        text = "snapshot %(snapshot)d has expired: starting again with %(mode)s (on_expired)"
        self._log.warning("position_expired", text, snapshot=wanted, mode=start.mode.value)

    def restarted(self, snapshot: Snapshot) -> None:
        text = "rows were removed: the full state of snapshot %(snapshot)d is read again"
        self._log.info("state_restarted", text, snapshot=snapshot.id)

    def _ended(self, next_id: int | None) -> None:
        if self._is_news(("end", next_id)):
            text = "the stream has reached its end" + ("" if next_id is None else " before snapshot %(snapshot)d")
            self._log.info("end", text, snapshot=next_id)

    def _is_news(self, line: object) -> bool:
        news, self._last = line != self._last, line
        return news
