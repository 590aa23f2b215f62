"""Reads what a history left, with Java and with ours, and compares by the rules of the corpus."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from support.corpus.cases import Read, Scenario, _read, on_file
from support.corpus.compare import Difference, Rules, differences
from support.corpus.outcome import End, Outcome
from support.corpus.runner import run_read, settings_for
from support.java.followed import Finding, Followed, Tally
from support.java.histories import History, Setup
from support.java.live import JavaError, LiveJava
from support.java.values import value
from support.java.verdict import RETRACTING, compare, filtered, joined, scenario_of
from support.java.writer import BRANCH, CONSUMER, Written, carry_out

VARIANTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("limited to one unit per plan", {"max_splits": 1}),
    ("limited to one unit per plan, restarted at every position", {"max_splits": 1, "restarts": True}),
    ("restarted at every position", {"restarts": True}),
    ("with collapsed catch-up", {"catch_up": "auto"}),
)
"""Ours alone: none of these changes which rows come, nor their order per bucket."""


def examine(java: LiveJava, history: History, tally: Tally) -> list[Finding]:
    """Writes the history, runs its reads on both sides, and tells every difference."""
    with tempfile.TemporaryDirectory() as scratch:
        warehouse = Path(scratch) / "wh"
        followed = Followed(java, history, warehouse, tally)
        try:
            written = carry_out(java, history, warehouse, followed.advance)
        except JavaError as error:
            tally.refused[f"create: {error}"[:200]] += 1
            return []
        finally:
            followed.close()
        tally.histories += 1
        tally.steps += len(history.steps)
        tally.refused.update(reason.split(" (cause")[0][:200] for reason in written.refused)
        return [*followed.findings(), *_Comparison(java, history, written, tally).findings()]


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
        scenario = scenario_of(self.written.warehouse, schema)
        try:
            read = self._read(raw | answer, scenario)
        except ValueError:
            error = answer["end"]["error"]
            self.tally.unreadable[f"{error['class']}: {error['message'][:120]} at {error['trace'][:1]}"] += 1
            return None, []
        wanted = self._wanted(scenario, read, fixed_buckets)
        settings = settings_for(scenario, read)
        if read.notify:
            settings = replace(settings, on_expired="earliest")  # as Java, where a consumer has expired
        had = run_read(scenario, read, settings)
        self.tally.reads += 1
        self.tally.rows += sum(len(split.rows) for plan in read.java.plans for split in plan.splits)
        if had.failure is not None and "overwrites rows of it" in had.failure.message:
            if read.filter is not None or schema["options"].get("deletion-vectors.enabled") == "true":
                # Ours refuses what it cannot take back; Java does not look where the filter leaves none of those files,
                # nor at deletion vectors of files that stay.
                return None, []
            wanted = replace(wanted, final_next=had.final_next)  # Java fails once it has passed on, ours before
        rules, found = compare(wanted, had, scenario, read)
        if found or had.failure is not None or not had.plans_with_rows():
            return None, found
        name, changes = VARIANTS[(len(self.history.steps) + len(self.answers)) % len(VARIANTS)]
        varied = run_read(scenario, read, replace(settings, **changes))
        return name, differences(joined(had), joined(varied), Rules(rules.first_plan_unordered))

    def _java(self, setup: dict[str, Any]) -> dict[str, Any]:
        key = json.dumps(setup)
        if key not in self.answers:
            with self.written.consumers_kept():
                self.answers[key] = self.java.call("read", **setup)
                if "notify_each_plan" in setup:
                    self.answers[key]["consumer_files_after"] = self.written.consumers()
        return self.answers[key]

    @staticmethod
    def _read(raw: dict[str, Any], scenario: Scenario) -> Read:
        files = on_file(scenario.warehouse, raw.get("branch"))
        return _read({"name": "live", "restore": None, **raw}, scenario.fields, files)

    def _wanted(self, scenario: Scenario, read: Read, fixed_buckets: bool) -> Outcome:
        outcome = read.java
        if read.shard is not None and fixed_buckets:
            outcome = outcome.of_shard(read.shard)
        if read.filter is not None:
            outcome = filtered(outcome, scenario, read)
        if read.notify and outcome.end is End.END_OF_SCAN and outcome.final_next is not None:
            # Ours saves that it passed over the snapshots before the end; Java has no plan there to confirm.
            branch = f"branch/branch-{read.branch}/" if read.branch else ""
            ended = {f"d.db/t/{branch}consumer/consumer-{CONSUMER}": outcome.final_next}
            known = outcome.consumer_files or {}
            outcome = replace(outcome, consumer_files={name: ended.get(name, at) for name, at in known.items()})
        ignored = read.options.get("consumer.ignore-progress") == "true"
        if read.notify and outcome.final_next is None and outcome.consumer_files and not ignored:
            # Java goes on at a consumer's position once there is a snapshot; ours is there already.
            outcome = replace(outcome, final_next=min(outcome.consumer_files.values()))
        return replace(outcome, end=self._end(outcome, scenario, read))

    def _end(self, outcome: Outcome, scenario: Scenario, read: Read) -> End | None:
        """Java waits forever behind the oldest long-lived changelog, and for a later snapshot of an empty table.

        Restored behind a snapshot whose watermark is beyond the bound, Java also waits, for the next one, at which it
        ends; ours ends at once, as a start there does in both.
        """
        if outcome.end is not End.WAITING or outcome.final_next is None:
            return outcome.end
        snapshots = self.written.snapshots(read.branch)
        if not snapshots and outcome.final_next > 1:
            return End.BEYOND_LATEST
        bound = read.options.get("scan.bounded.watermark")
        before = snapshots.get(outcome.final_next - 1, {}).get("watermark")
        if read.restore is not None and None not in (bound, before) and before > int(bound):
            return End.END_OF_SCAN
        decoupled = "changelog.num-retained.max" in scenario.table_options
        there = [*snapshots, *self.written.snapshots(read.branch, "changelog")]
        return End.EXPIRED if decoupled and there and outcome.final_next < min(there) else outcome.end


OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "in", "is_null", "not_null")
UNSHARED_STARTS = ("from-file-creation-time", "from-creation-timestamp")
FILTERED = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL", "STRING", "VARCHAR", "DATE", "TIMESTAMP")


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
    elif setup.start == "consumer":
        raw["notify_each_plan"] = True
        options |= {"consumer-id": CONSUMER, "scan.mode": ("latest-full", "latest")[setup.pick % 2]}
        if setup.pick % 5 == 4:
            options["consumer.ignore-progress"] = "true"
    else:
        options["scan.mode"] = setup.start
    if setup.bound is not None:
        options["scan.bounded.watermark"] = str(1000 * setup.bound)
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

    Not where Java's retractions are not to be had: of rows that deletion vectors removed, and of pending records,
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
    if setup.start == "consumer" and what != "projection":
        return  # ours has a file per part of the table, Java one file
    if what == "bucket":
        raw["bucket_filter"] = pick % 3
    elif what == "shard":
        if setup.start in UNSHARED_STARTS and not schema["primary_keys"]:
            return  # ours refuses it where rows move between shards
        raw["shard"] = [pick % 3, 3] if pick % 2 else [pick % 2, 2]
    elif "filter" not in raw and schema["options"].get("data-evolution.enabled") != "true":
        # Java 1.4 leaves rows of data evolution out of which no projected column was written (2.1 does not).
        count = len(schema["fields"])
        raw["projection"] = list(dict.fromkeys(index % count for index in (pick, pick // 2, pick + 1)))
