"""Reads what a history left, with Java and with ours, and compares by the rules of the corpus."""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from corpus_board import nearest, rules_for
from corpus_cases import Read, Scenario, _read
from corpus_compare import Difference, Rules
from corpus_outcome import BucketRows, End, Outcome, PlanRows, Row
from corpus_runner import Run, run_read, settings_for
from corpus_values import matches
from live_java_client import JavaError, LiveJava
from live_java_histories import History, Setup
from live_java_values import value
from live_java_writer import BRANCH, Written, carry_out

OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "in", "is_null", "not_null")
FILTERED = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL", "STRING", "VARCHAR", "DATE", "TIMESTAMP")
RETRACTING = ("none", "input")
VARIANTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("limited to one unit per plan", {"max_splits": 1}),
    ("limited to one unit per plan, restarted at every position", {"max_splits": 1, "restarts": True}),
    ("restarted at every position", {"restarts": True}),
    ("with collapsed catch-up", {"catch_up": "auto"}),
)
"""Ours alone: none of these changes which rows come, nor their order per bucket."""


@dataclass(slots=True)
class Tally:
    """What was compared so far."""

    histories: int = 0
    steps: int = 0
    reads: int = 0
    rows: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    unreadable: Counter[str] = field(default_factory=Counter)

    def most_common(self) -> list[str]:
        """What Java refused or could not read, most often first."""
        counters = (self.refused, self.unreadable)
        return [f"{count} x {text}" for counter in counters for text, count in counter.most_common(5)]

    def __str__(self) -> str:
        return (
            f"{self.histories} histories, {self.steps} steps ({self.refused.total()} refused by Java), "
            f"{self.reads} reads ({self.unreadable.total()} that Java could not do), {self.rows} rows of Java's"
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """A read that is not as wanted.

    Attributes:
        variant: Settings of ours that must not change the rows, or None for the read beside Java's.
    """

    setup: dict[str, Any]
    variant: str | None
    differences: tuple[Difference, ...]

    def __str__(self) -> str:
        lines = [f"read {json.dumps(self.setup)} {self.variant or ''}"]
        for each in self.differences:
            lines += [f"  {each.what}: {each.text}", *(f"      {line}" for line in each.lines[-60:])]
        return "\n".join(lines)


def examine(java: LiveJava, history: History, tally: Tally) -> list[Finding]:
    """Writes the history, runs its reads on both sides, and tells every difference."""
    with tempfile.TemporaryDirectory() as scratch:
        followed = _Followed(java, history, Path(scratch) / "wh")
        try:
            written = carry_out(java, history, followed.warehouse, followed.advance)
        except JavaError as error:
            tally.refused[f"create: {error}"[:200]] += 1
            return []
        finally:
            followed.finish()
        tally.histories += 1
        tally.steps += len(history.steps)
        tally.refused.update(reason.split(" (cause")[0][:200] for reason in written.refused)
        return [*followed.findings(tally), *_Comparison(java, history, written, tally).findings()]


@dataclass(slots=True)
class _Comparison:
    java: LiveJava
    history: History
    written: Written
    tally: Tally
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)

    def findings(self) -> Iterator[Finding]:
        setups = (Setup("latest-full"), Setup("restore", 1), *self.history.reads)
        seen = set()
        for setup in setups:
            branch = BRANCH if setup.branch and self.written.has_branch() else None
            schema = self.java.call("schema", branch=branch)
            raw = resolve(setup, self.written, schema, branch)
            if (text := json.dumps(raw)) not in seen:
                seen.add(text)
                variant, found = self._judge(raw, schema)
                if found:
                    yield Finding(raw, variant, tuple(found))

    def _judge(self, raw: dict[str, Any], schema: dict[str, Any]) -> tuple[str | None, list[Difference]]:
        base = {name: given for name, given in raw.items() if name not in ("filter", "execute_filter")}
        fixed_buckets = bool(schema["primary_keys"]) or schema["options"].get("bucket", "-1") != "-1"
        if fixed_buckets:
            base.pop("shard", None)
        answer = self._java(base)
        scenario = _scenario(self.written.warehouse, schema)
        try:
            read = self._read(raw | answer, scenario)
        except ValueError:
            error = answer["end"]["error"]
            self.tally.unreadable[f"{error['class']}: {error['message'][:120]} at {error['trace'][:1]}"] += 1
            return None, []
        wanted = self._wanted(scenario, read, fixed_buckets)
        had = run_read(scenario, read, settings_for(scenario, read))
        self.tally.reads += 1
        self.tally.rows += sum(len(split.rows) for plan in read.java.plans for split in plan.splits)
        if read.filter is not None and had.failure is not None and "overwrites rows of it" in had.failure.message:
            # Ours refuses what it cannot take back; Java does not look, where the filter leaves none of those files.
            return None, []
        rules, found = compare(wanted, had, scenario, read)
        if found or had.failure is not None or not had.plans_with_rows():
            return None, found
        name, changes = VARIANTS[(len(self.history.steps) + len(self.answers)) % len(VARIANTS)]
        varied = run_read(scenario, read, replace(settings_for(scenario, read), **changes))
        return name, nearest([_joined(had)], _joined(varied), Rules(rules.first_plan_unordered))[0]

    def _java(self, setup: dict[str, Any]) -> dict[str, Any]:
        key = json.dumps(setup)
        if key not in self.answers:
            self.answers[key] = self.java.call("read", **setup)
        return self.answers[key]

    @staticmethod
    def _read(raw: dict[str, Any], scenario: Scenario) -> Read:
        return _read({"name": "live", "restore": None, **raw}, scenario.fields)

    def _wanted(self, scenario: Scenario, read: Read, fixed_buckets: bool) -> Outcome:
        outcome = read.java
        if read.shard is not None and fixed_buckets:
            index, count = read.shard
            outcome = _splits(outcome, lambda split, _: split.rows if split.bucket % count == index else [])
        if read.filter is not None:
            outcome = _filtered(outcome, scenario, read)
        return replace(outcome, end=self._end(outcome, scenario, read))

    def _end(self, outcome: Outcome, scenario: Scenario, read: Read) -> End | None:
        """Java waits forever behind the oldest long-lived changelog (B13)."""
        decoupled = "changelog.num-retained.max" in scenario.table_options
        if outcome.end is not End.WAITING or not decoupled or outcome.final_next is None:
            return outcome.end
        there = [*self.written.snapshots(read.branch), *self.written.snapshots(read.branch, "changelog")]
        return End.EXPIRED if there and outcome.final_next < min(there) else outcome.end


def compare(wanted: Outcome, had: Outcome, scenario: Scenario, read: Read) -> tuple[Rules, list[Difference]]:
    """By the rules of the corpus, and those of pending records."""
    rules = rules_for(scenario, read)
    pending = scenario.table_options.get("bucket") == "-2"
    # Java's first plan may be empty; ours is then left out, and our first one is a follow-up.
    if read.starts_full and pending and any(split.rows for split in wanted.plans[0].splits):
        # Java sorts the files of pending records by key, and shows +U as +I where there is but one file;
        # ours leave as they were written (B11, B21).
        rules = replace(rules, first_plan_unordered=True)
        return rules, nearest([_without_updates(wanted)], _without_updates(had), rules)[0]
    return rules, nearest([wanted], had, rules)[0]


class _Followed:
    """A stream that begins with the empty table and goes on after every step, beside Java's (B1, B7)."""

    def __init__(self, java: LiveJava, history: History, warehouse: Path) -> None:
        self.warehouse = warehouse
        self._java = java
        self._steady = not {"alter", "rollback"} & {what for what, _ in history.steps}
        self._options = {"scan.mode": ("latest", "latest-full")[len(history.steps) % 2]}
        self._run: Run | None = None

    def advance(self) -> None:
        if not self._steady:
            return
        if self._run is None:
            self._scenario = _scenario(self.warehouse, self._java.call("schema"))
            self._java.call("follow", name="live", options=self._options)
            read = self._read({"plans": [], "end": "waiting"})
            self._run = Run(self._scenario, read, settings_for(self._scenario, read), self.warehouse)
            self._run.open()
        self._java.call("poll", name="live")
        self._run.advance()

    def finish(self) -> None:
        if self._run is not None:
            self._run.finish()

    def findings(self, tally: Tally) -> Iterator[Finding]:
        if self._run is not None:
            read = self._read(self._java.call("unfollow", name="live"))
            tally.reads += 1
            found = compare(read.java, self._run.outcome(), self._scenario, read)[1]
            if found:
                yield Finding({"options": self._options}, "followed step by step", tuple(found))

    def _read(self, answer: dict[str, Any]) -> Read:
        return _read({"name": "live", "restore": None, "options": self._options, **answer}, self._scenario.fields)


def _joined(outcome: Outcome) -> Outcome:
    """All plans as one: rows per bucket, in order."""
    splits = tuple(split for plan in outcome.plans for split in plan.splits)
    return replace(outcome, plans=(PlanRows(None, None, splits),))


def _scenario(warehouse: Path, schema: dict[str, Any]) -> Scenario:
    return Scenario(
        archive="live",
        name="live",
        description="",
        warehouse=warehouse,
        table_options=schema["options"],
        fields=tuple((each["name"], each["type"]) for each in schema["fields"]),
        partition_keys=tuple(schema["partition_keys"]),
        primary_keys=tuple(schema["primary_keys"]),
        snapshots=(),
        reads={},
    )


def _splits(outcome: Outcome, rows: Any) -> Outcome:
    """The outcome with other rows per split, and without splits that have none; the first plan is told from others."""
    plans = tuple(
        replace(plan, splits=tuple(replace(split, rows=rows(split, index == 0)) for split in plan.splits))
        for index, plan in enumerate(outcome.plans)
    )
    return replace(outcome, plans=plans)


def _without_updates(outcome: Outcome) -> Outcome:
    def rows(split: BucketRows, first: bool) -> list[Row]:
        return [["+I", *row[1:]] if first and row[0] == "+U" else row for row in split.rows]

    return _splits(outcome, rows)


def _filtered(outcome: Outcome, scenario: Scenario, read: Read) -> Outcome:
    """Row by row; on streams of unmerged records what does not match by more than its key comes as -D (B19)."""
    assert read.filter is not None
    name, op, wanted = read.filter
    sql_types = dict(read.columns)
    index = list(sql_types).index(name) + 1
    stays = {*scenario.primary_keys, *scenario.partition_keys}
    producer = scenario.table_options.get("changelog-producer", "none")
    retracts = bool(scenario.primary_keys) and producer in RETRACTING and name not in stays and not read.execute_filter

    def rows(split: BucketRows, first: bool) -> list[Row]:
        records = retracts and not (first and read.starts_full and split.bucket >= 0)
        kept = []
        for row in split.rows:
            if matches(row[index], op, wanted, sql_types[name]):
                kept.append(row)
            elif records:
                kept.append(["-D", *row[1:]])
        return kept

    return _splits(outcome, rows)


def resolve(setup: Setup, written: Written, schema: dict[str, Any], branch: str | None) -> dict[str, Any]:
    """The read as the corpus describes one, with the facts of the table."""
    snapshots = written.snapshots(branch)
    ids = [0, *snapshots, max(snapshots, default=0) + 1, max(snapshots, default=0) + 2]
    chosen = ids[setup.pick % len(ids)]
    times = [snapshots[number]["timeMillis"] for number in snapshots] or [0]
    time = times[setup.pick % len(times)] + (setup.pick % 3 - 1)
    options: dict[str, str] = {}
    raw: dict[str, Any] = {"options": options}
    if setup.start == "restore":
        raw["restore"] = chosen
    elif setup.start.startswith("from-snapshot"):
        options |= {"scan.mode": setup.start, "scan.snapshot-id": str(chosen)}
    elif setup.start == "from-timestamp":
        options |= {"scan.mode": setup.start, "scan.timestamp-millis": str(time)}
    elif setup.start == "from-file-creation-time":
        options |= {"scan.mode": setup.start, "scan.file-creation-time-millis": str(time)}
    elif setup.start == "from-creation-timestamp":
        options |= {"scan.mode": setup.start, "scan.creation-time-millis": str(time)}
    else:
        options["scan.mode"] = setup.start
    if branch:
        raw["branch"] = branch
    _add_overwrite(setup, schema, options)
    _add_filter(setup, schema, raw)
    columns = None if setup.filter is not None else _columns_of_view(setup.view, schema)
    if columns is None:
        _add_narrow(setup, schema, raw)
    else:
        raw |= {"system_table": setup.view, "columns": columns}
    return raw


def _columns_of_view(view: str | None, schema: dict[str, Any]) -> list[list[str]] | None:
    """Names and types that a view has, or None where the table has no such view that streams.

    Not the binlog of partitioned tables: its rows, whose columns are lists, do not tell their partition as others do.
    """
    columns = [[each["name"], each["type"]] for each in schema["fields"]]
    kind = ["rowkind", "STRING"]
    if view == "audit_log":
        return [kind, *columns]
    if view == "binlog" and not schema["partition_keys"]:
        return [kind, *([name, f"ARRAY<{type_.removesuffix(' NOT NULL')}>"] for name, type_ in columns)]
    if view == "ro" and not schema["primary_keys"]:
        return columns
    if view == "row_tracking" and schema["options"].get("row-tracking.enabled") == "true":
        return [*columns, ["_ROW_ID", "BIGINT NOT NULL"], ["_SEQUENCE_NUMBER", "BIGINT NOT NULL"]]
    return None


def _add_overwrite(setup: Setup, schema: dict[str, Any], options: dict[str, str]) -> None:
    """Overwrites are read where neither side refuses.

    Not where Java's retractions are not to be had: of rows that deletion vectors removed (B9), and of pending records,
    which Java merges although they are not sorted.
    """
    deletion_vectors = schema["options"].get("deletion-vectors.enabled") == "true"
    if not setup.overwrite or deletion_vectors or schema["options"].get("bucket") == "-2":
        return
    if not schema["primary_keys"]:
        options["streaming-read-append-overwrite"] = "true"
    elif schema["options"].get("changelog-producer", "none") in RETRACTING:
        options["streaming-read-overwrite"] = "true"


def _add_filter(setup: Setup, schema: dict[str, Any], raw: dict[str, Any]) -> None:
    fields = [each for each in schema["fields"] if isinstance(each["json"], str) and each["json"].startswith(FILTERED)]
    if setup.filter is None or not fields:
        return
    column, operator, seed = setup.filter
    chosen, op = fields[column % len(fields)], OPERATORS[operator % len(OPERATORS)]
    kind = chosen["json"].removesuffix(" NOT NULL") + " NOT NULL"
    source = random.Random(seed)
    literals = [value(kind, source, False) for _ in range(2)]
    if op in ("is_null", "not_null"):
        raw["filter"] = [chosen["name"], op, None]
    else:
        raw["filter"] = [chosen["name"], op, literals if op == "in" else literals[0]]
    unmerged = schema["options"].get("merge-engine") in ("partial-update", "aggregation", "first-row")
    no_changelog = schema["options"].get("changelog-producer", "none") == "none"
    raw["execute_filter"] = (unmerged and no_changelog) or seed % 4 == 0


def _add_narrow(setup: Setup, schema: dict[str, Any], raw: dict[str, Any]) -> None:
    if setup.narrow is None:
        return
    what, pick = setup.narrow
    if what == "bucket":
        raw["bucket_filter"] = pick % 3
    elif what == "shard":
        raw["shard"] = [pick % 3, 3] if pick % 2 else [pick % 2, 2]
    elif "filter" not in raw:
        count = len(schema["fields"])
        raw["projection"] = list(dict.fromkeys(index % count for index in (pick, pick // 2, pick + 1)))
