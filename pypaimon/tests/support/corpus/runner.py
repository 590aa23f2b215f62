"""Runs one read of the corpus with our library, and says what it came to."""

from __future__ import annotations

import json
import signal
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.corpus.cases import Read, Scenario, copy_warehouse
from support.corpus.outcome import BucketRows, End, Failure, Outcome, PlanRows, Row
from support.corpus.values import column_values, literal, scalar
from support.process_state import in_zone

# Java looks for expired snapshots at every 16th idle poll.
IDLE_POLLS = 20
# Reached by a read that hangs only, however busy the machine is.
TIME_LIMIT_SECONDS = 300
UNMERGED_ENGINES = ("partial-update", "aggregation", "first-row")
PREDICATES = {
    "=": "equal",
    "<>": "not_equal",
    "<": "less_than",
    "<=": "less_or_equal",
    ">": "greater_than",
    ">=": "greater_or_equal",
    "in": "is_in",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What makes our reader comparable with Java's core, and what must not change its rows.

    Attributes:
        restarts: After every plan another scan goes on, at the position of the one before it.
        process_zone: The time zone of the process; one other than UTC changes no row, as the stream names Java's, UTC.
    """

    raw: bool = False
    on_expired: str = "fail"
    on_schema_change: str = "fail"
    unmatched: str | None = None
    catch_up: str = "replay"
    max_splits: int | None = None
    restarts: bool = False
    process_zone: str = "UTC"


def settings_for(scenario: Scenario, read: Read) -> Settings:
    options = scenario.table_options
    no_changelog = options.get("changelog-producer", "none") == "none"
    goes_on = scenario.name.startswith("expire_") and read.name.startswith("consumer_old")
    return Settings(
        raw=no_changelog and options.get("merge-engine") in UNMERGED_ENGINES,
        on_expired="earliest" if goes_on else "fail",
        unmatched="drop" if read.execute_filter else None,
    )


def run_read(scenario: Scenario, read: Read, settings: Settings) -> Outcome:
    """Run a read until `IDLE_POLLS` idle polls in a row, the end, or an error.

    Reads that may write get a copy of the table.

    Whatever the read raises becomes the outcome's `failure`; one that hangs is ended by a `TimeoutError`
    (main thread only).
    """
    import pypaimon.streaming  # noqa: F401 - the limit must not end an import half-way

    with warnings.catch_warnings(), ExitStack() as stack:
        stack.enter_context(in_zone(settings.process_zone))
        warnings.simplefilter("ignore", UserWarning)
        warehouse = scenario.warehouse
        if "consumer-id" in read.options:
            warehouse = copy_warehouse(scenario, Path(stack.enter_context(tempfile.TemporaryDirectory())))
        stack.enter_context(_time_limit())
        run = Run(scenario, read, settings, warehouse)
        run.go()
        return run.outcome()


class Run:
    def __init__(self, scenario: Scenario, read: Read, settings: Settings, warehouse: Path) -> None:
        self.scenario = scenario
        self.read = read
        self.settings = settings
        self.warehouse = warehouse
        self.stage = "open"
        self.builder: Any = None
        self.scan: Any = None
        self.reader: Any = None
        self.plans: list[PlanRows] = []
        self.end: End | None = None
        self.failure: Failure | None = None
        self.columns: tuple[str, ...] | None = None
        self.final_next: int | None = None

    def outcome(self) -> Outcome:
        files = self._consumer_files() if self.read.notify else None
        return Outcome(tuple(self.plans), self.end, self.final_next, self.failure, self.columns, files)

    def go(self) -> None:
        self.open()
        self.advance()
        self.finish()

    def open(self) -> None:
        with self._noted():
            self.builder = self._builder()
            self.scan = self.builder.new_streaming_scan()
            self.reader = self.builder.new_read()
            if self.read.restore is not None:
                self.scan.restore(self.read.restore)

    def advance(self) -> None:
        """Until nothing more comes; may be called again when the table has grown."""
        if self.failure is None and self.end is not End.END_OF_SCAN:
            with self._noted():
                self._poll(self.builder, self.reader)

    def finish(self) -> None:
        if self.scan is not None:
            self._close(self.scan)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - every error is an outcome here
            self.failure = _failure(error, self.stage)

    def _close(self, scan: Any) -> None:
        try:
            self.final_next = scan.next_snapshot_id
            scan.close()
        except Exception as error:  # noqa: BLE001 - every error is an outcome here
            self.failure = self.failure or _failure(error, "close")

    def _builder(self) -> Any:
        from pypaimon.streaming import stream_read_builder

        read, settings = self.read, self.settings
        builder = stream_read_builder(self._table(), view=read.system_table)
        builder = builder.with_catch_up(settings.catch_up).with_on_expired(settings.on_expired)
        builder = builder.with_on_schema_change(settings.on_schema_change)
        builder = builder.with_include_row_kind(True).with_limits(max_splits=settings.max_splits)
        if settings.process_zone != "UTC":
            builder = builder.with_time_zone("UTC")
        if settings.raw:
            builder = builder.with_raw(True)
        if read.projection is not None:
            builder = builder.with_projection(list(read.projection))
        if read.bucket is not None:
            builder = builder.with_buckets([read.bucket])
        if read.filter is not None:
            predicate = self._predicate(builder.new_predicate_builder())
            chosen = {} if settings.unmatched is None else {"unmatched": settings.unmatched}
            builder = builder.with_filter(predicate, **chosen)
        return builder if read.shard is None else self._sharded(builder)

    def _sharded(self, builder: Any) -> Any:
        """With the read's shard; where rows move between shards, at the fixed start that the read finds by itself."""
        from pypaimon.streaming import PaimonStreamError, StreamConfigError

        sharded = builder.copy().with_shard(*self.read.shard)
        try:
            sharded.new_streaming_scan().close()
        except StreamConfigError as refused:
            if "with_shard" not in str(refused):
                raise
        else:
            return sharded
        with builder.new_streaming_scan() as scan:
            planner = scan._driver.parts.get().planner
            try:
                start = planner.position(planner.begun(planner.initial()))
            except PaimonStreamError:
                # The stream itself is to fail at its first plan.
                return builder
        return sharded.with_start(snapshot_id=1) if start is None else sharded.with_start(position=start)

    def _table(self) -> Any:
        from pypaimon import CatalogFactory

        catalog = CatalogFactory.create({"warehouse": str(self.warehouse)})
        table: Any = catalog.get_table("d.t" + (f"$branch_{self.read.branch}" if self.read.branch else ""))
        copy = table.copy if self.read.time_travel else table.copy_without_time_travel
        return copy(dict(self.read.options))

    def _predicate(self, builder: Any) -> Any:
        assert self.read.filter is not None
        name, op, value = self.read.filter
        if op in ("is_null", "not_null"):
            return builder.is_null(name) if op == "is_null" else builder.is_not_null(name)
        return getattr(builder, PREDICATES[op])(name, literal(value, dict(self.scenario.fields)[name]))

    def _poll(self, builder: Any, reader: Any) -> None:
        from pypaimon.streaming import EndOfScan

        idle = 0
        confirmed = None
        while idle < IDLE_POLLS:
            self.stage = "plan"
            scan = self.scan
            before = scan.next_snapshot_id
            try:
                plan = scan.plan()
            except EndOfScan:
                self.end = End.END_OF_SCAN
                return
            if plan is not None:
                self.stage = "read"
                self.plans.append(self._plan_rows(scan, reader, plan))
            after = scan.next_snapshot_id
            if self.read.notify and after is not None and after != confirmed:
                self.stage = "notify"
                scan.notify_checkpoint_complete(after)
                confirmed = after
            idle = idle + 1 if plan is None and before == after else 0
            if self.settings.restarts and plan is not None:
                self._restart(builder)
        self.end = End.WAITING

    def _restart(self, builder: Any) -> None:
        from pypaimon.streaming import Position

        self.stage = "open"
        position = Position.from_json(self.scan.checkpoint().to_json())
        self.scan.close()
        self.scan = builder.new_streaming_scan()
        self.scan.restore(position)

    def _plan_rows(self, scan: Any, reader: Any, plan: Any) -> PlanRows:
        splits = tuple(
            BucketRows(
                partition=json.dumps(_partition(split.partition), ensure_ascii=False),
                bucket=split.bucket,
                rows=self._rows(reader.to_arrow([split])),
            )
            for split in plan.splits()
        )
        position = json.loads(plan.position.to_json())
        del position["version"], position["table"]
        return PlanRows(scan.next_snapshot_id, plan.watermark, splits, position)

    def _rows(self, table: Any) -> list[Row]:
        kind, *names = table.column_names
        if kind != "_row_kind":
            raise AssertionError(f"the first column is {kind!r}, not '_row_kind'")
        self.columns = tuple(names)
        sql_types = dict(self.read.columns)
        columns = [column_values(table.column(0))]
        columns += [column_values(table.column(i + 1), sql_types.get(name, "")) for i, name in enumerate(names)]
        return [list(row) for row in zip(*columns, strict=True)]

    def _consumer_files(self) -> dict[str, int]:
        paths = (path for path in self.warehouse.rglob("*") if path.parent.name == "consumer" and path.is_file())
        return {str(path.relative_to(self.warehouse)): _next_snapshot(path) for path in sorted(paths)}


def _next_snapshot(path: Path) -> int:
    try:
        return int(json.loads(path.read_text())["nextSnapshot"])
    except (ValueError, KeyError, TypeError):
        return -1  # no consumer file: shows as a difference


def _partition(partition: Any) -> dict[str, Any]:
    return {name: scalar(value) for name, value in partition.to_dict().items()}


def _failure(error: Exception, stage: str) -> Failure:
    names = tuple(kind.__name__ for kind in type(error).__mro__ if kind not in (Exception, BaseException, object))
    path = getattr(error, "path", None)
    return Failure(names or ("Exception",), str(error), stage, path, "".join(traceback.format_exception(error)))


@contextmanager
def _time_limit() -> Iterator[None]:
    def expire(signum: int, frame: Any) -> None:
        raise TimeoutError(f"no end after {TIME_LIMIT_SECONDS} s")

    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, TIME_LIMIT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
