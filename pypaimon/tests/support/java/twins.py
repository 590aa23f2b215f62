"""One history on two tables: in the first one all is Java's, in the second one some commits and compactions are ours.

All else (expiry, overwrites, schema changes, rollbacks, reading) is Java's in both, so that Java says whether such a
table is as its own: its rows after each step, and what its stream hands out.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timezone
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory
from pypaimon.data.generic_variant import GenericVariant

from pypaimon.streaming.commit.conflicts import TableState
from pypaimon.streaming.commit.idempotent_commit import commit_once
from pypaimon.streaming.commit.request import CommitRequest
from pypaimon.streaming.compaction.compactor import compact
from pypaimon.streaming.errors import PaimonStreamError, UnsupportedTableError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.arrow_types import arrow_type
from pypaimon.streaming.paimon.write_internals import BucketMode
from pypaimon.streaming.writing.dynamic_buckets import BucketAssigner
from pypaimon.streaming.writing.record_writer import RecordWriter
from pypaimon.streaming.writing.row_layout import BadRowError, TargetTable, row_layout
from pypaimon.streaming.writing.writable_tables import check_writable
from pypaimon.streaming.writing.write_state import WriteState, write_state
from support.java import writer as live_java_writer
from support.java.histories import History
from support.java.live import JavaError, LiveJava

_LEFT_OUT = {"branch", "branch_compact", "branch_alter", "consumer", "evolve", "delete"}
"""Steps that only matter to readers, or that ours does not take part in."""
_KIND = "_kind"


@dataclass(slots=True)
class TwinTally:
    histories: int = 0
    commits: int = 0
    written: int = 0
    compacted: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        told = [f"{count} x {text}" for text, count in self.refused.most_common(8)]
        ours = f"{self.written} of them and {self.compacted} compactions ours in the twin"
        head = f"{self.histories} histories, {self.commits} commits of Java, {ours}"
        return "\n    ".join([head, *told])


def twins_differ(java: LiveJava, history: History, turns: int, tally: TwinTally) -> list[str]:
    """Run a history twice, and tell what differs.

    Args:
        turns: Bits that say which commits of the second table are ours; with the lowest one compactions are by turns
            too, and nothing is rolled back: Java makes a snapshot of its own for each compaction that has nothing to
            do.
    """
    history = _prepared(history, turns)
    try:
        wanted = list(_run(java, history, None, tally))
    except JavaError as error:
        tally.refused[f"create: {error}"[:160]] += 1
        return []
    if refused := [each for each in wanted[-1]["refused"] if each.startswith(("write", "compact"))]:
        tally.refused[refused[0][:160]] += 1
        return []
    tally.histories += 1
    found = list(_run(java, history, turns, tally))
    return [
        f"after step {number} ({step}): {what}\n  java: {expected[what]}\n  ours: {had[what]}"
        for number, (step, expected, had) in enumerate(zip(["create", *history.steps], wanted, found, strict=True))
        for what in reversed(expected)
        if expected[what] != had[what]
    ][:1]


def _prepared(history: History, turns: int) -> History:
    """What both sides must do alike: only explicit steps compact, and all of a bucket, for which files Java takes
    otherwise depends on their sizes; no small write buffers, which cut a flush in two; no descending sequence fields,
    which Java 1.4's write buffer takes for ascending; one file of a postponed bucket in a commit, for reads give those
    of several in no order; and postponed records of one writer only in a compaction, for those of several have none.
    """
    compacting = bool(turns & 1)
    left_out = set(_LEFT_OUT)
    if _evolves(history):
        left_out.discard("evolve")
    if compacting:
        left_out.add("rollback")
        if history.options.get("changelog-producer") == "full-compaction":
            # Java's overwrites put deletes on the highest level, which its changelog then takes back as rows.
            left_out.add("overwrite")
    steps: list[Any] = []
    commits, is_ours = 0, False
    for what, arguments in history.steps:
        if what in left_out:
            continue
        if what == "write" and compacting and history.family == "postpone":
            commits += 1
            if is_ours != (is_ours := _is_ours(turns, commits, arguments.get("watermark"))):
                steps.append(("compact", {"full": True}))
        steps.append((what, arguments | {"full": True} if what == "compact" else arguments))
        if compacting and what == "write" and turns >> (len(steps) * 3 % 16) & 1:
            steps.append(("compact", {"full": True}))
    unset = {"sequence.field.sort-order", "write-buffer-size", "page-size"}
    if history.family == "postpone":
        unset.add("target-file-size")
    options = {name: given for name, given in history.options.items() if name not in unset}
    if _evolves(history):
        # What is due by it is what a full compaction of ours takes: Java has none.
        options["compaction.min.file-num"] = "2"
    return replace(history, options=options | {"write-only": "true"}, steps=tuple(steps), reads=())


def _is_ours(turns: int, commit: int, watermark: int | None) -> bool:
    return watermark is None and bool(turns >> (commit % 16) & 1)


def _evolves(history: History) -> bool:
    return history.options.get("data-evolution.enabled") == "true"


def _run(java: LiveJava, history: History, turns: int | None, tally: TwinTally) -> Iterator[dict[str, Any]]:
    with TemporaryDirectory() as scratch:
        warehouse = Path(scratch) / "wh"
        seen: list[dict[str, Any]] = []

        opened: dict[str, Any] = {}

        def look() -> None:
            schema = java.call("schema")
            if not seen:
                opened.update(schema)
                java.call("follow", name="live", options={"scan.mode": "latest"})
            java.call("poll", name="live")
            reply = java.call("read", options={"scan.mode": "latest-full"})
            seen.append({"rows": _plans(_state(reply), schema), "end": _end(reply)})

        writer = _Twin(java, history, warehouse, turns=turns, tally=tally)
        live_java_writer.carry_out(java, history, warehouse, look, writer)
        stream = java.call("unfollow", name="live")
        refused = [each.partition(":")[0] for each in writer.refused]
        seen[-1] |= {"refused": refused, "stream": _plans(stream["plans"], opened), "end": _end(stream)}
        yield from seen


def _end(reply: dict[str, Any]) -> Any:
    end = reply["end"]
    return end if isinstance(end, str) else [end["error"][each] for each in ("class", "message", "cause", "stage")]


def _state(reply: dict[str, Any]) -> list[dict[str, Any]]:
    """The first plan, without telling inserts from updates: Java reads kinds only where it merges files."""
    for split in _splits(reply):
        split["rows"] = [["+I" if row[0] == "+U" else row[0], *row[1:]] for row in split["rows"]]
    return reply["plans"][:1]


def _splits(reply: dict[str, Any]) -> list[dict[str, Any]]:
    """The splits of the first plan."""
    return [split for plan in reply["plans"][:1] for split in plan["splits"]]


def _plans(plans: list[dict[str, Any]], schema: dict[str, Any]) -> list[list[str]]:
    """The rows of each plan in an order that does not depend on how files were cut.

    Of a key, and of a bucket of a table without keys, they stay in their order, unless an option says that it has
    none. Dynamic buckets do not count: what Java does not write, such as ignored deletes, has a share in them, and so
    has chance where they are all full. Of postponed buckets all plans are one: ours compacts each partition in a
    snapshot of its own.
    """
    names = [each["name"] for each in schema["fields"]]
    keys = [names.index(name) for name in schema["primary_keys"]]
    options = schema["options"]
    ordered = not keys and int(options.get("bucket", "-1")) > 0 and options.get("bucket-append-ordered") != "false"
    dynamic = bool(keys) and options.get("bucket", "-1") == "-1"
    if options.get("bucket") == "-2":
        plans = [{"splits": [split for plan in plans for split in plan["splits"]]}]
    found = []
    for plan in plans:
        rows = []
        for split in plan["splits"]:
            where = json.dumps([split["partition"], -1 if dynamic else split["bucket"]])
            for row in split["rows"]:
                key = [row[1 + each] for each in keys]  # behind the kind
                rows.append((where, json.dumps(key), json.dumps([_unordered(each) for each in row])))
        if rows:
            rows.sort(key=lambda each: each[:2] if keys or ordered else each)
            found.append([row for _, _, row in rows])
    return found


def _unordered(value: Any) -> Any:
    """A value whose collections are sorted: maps have no order, and those that functions collect neither."""
    if isinstance(value, dict):
        return {name: _unordered(each) for name, each in value.items()}
    return sorted((_unordered(each) for each in value), key=json.dumps) if isinstance(value, list) else value


class _Twin(live_java_writer.Writer):
    """Writes as Java does, and by turns ours."""

    def __init__(
        self, java: LiveJava, history: History, warehouse: Path, *, turns: int | None, tally: TwinTally
    ) -> None:
        super().__init__(java, history, warehouse)
        self.assigns = True
        self._turns = turns
        self._tally = tally
        self._commits = 0
        self._compactions = 0

    def do_write(self, flushes: list[tuple[int, int]], watermark: int | None = None, branch: str | None = None) -> None:
        rows = self._rows(flushes, branch)
        self._commits += 1
        self._tally.commits += self._turns is not None
        ours = self._turns is not None and _is_ours(self._turns, self._commits, watermark)
        if not ours or not self._written(rows, watermark):
            mark = None if watermark is None else 1000 * watermark
            self.java.call("write", flushes=rows, watermark=mark, assigns=True)

    def do_compact(self, full: bool) -> None:
        self._compactions += 1
        ours = self._turns is not None and self._turns & 1 and self._turns >> (self._compactions * 5 % 16) & 1
        if not ours or not self._compacted():
            super().do_compact(full)

    def _compacted(self) -> bool:
        """Whether ours has compacted what is due, or by turns all."""
        table = CatalogFactory.create({"warehouse": str(self.warehouse)}).get_table("d.t")
        try:
            before = self._tracked()
            report = compact(table, full=self._compactions % 2 == 1)
            assert self._tracked() == before
        except UnsupportedTableError as error:
            self._tally.refused[str(error)[:160]] += 1
            return False
        self._tally.compacted += bool(report.new_snapshot_ids)
        return True

    def _tracked(self) -> list[list[Any]]:
        """The rows with their ids, as Java reads them, if they have some. With data evolution a sequence number is that
        of a file.
        """
        options = self.history.options
        if options.get("row-tracking.enabled") != "true":
            return []
        reply = self.java.call("read", options={"scan.mode": "latest-full"}, system_table="row_tracking")
        assert reply["end"] == "waiting", reply
        rows = [row[:-1] if _evolves(self.history) else row for split in _splits(reply) for row in split["rows"]]
        return sorted(rows, key=json.dumps)

    def _written(self, flushes: list[list[list[Any]]], watermark: int | None) -> bool:
        """Whether ours has written it; not what is refused."""
        table = CatalogFactory.create({"warehouse": str(self.warehouse)}).get_table("d.t")
        try:
            write(table, flushes, f"ours-{self._commits}", None if watermark is None else 1000 * watermark)
        except (UnsupportedTableError, BadRowError) as error:
            self._tally.refused[str(error)[:160]] += 1
            return False
        self._tally.written += 1
        return True


def write(table: Any, flushes: list[list[list[Any]]], user: str, watermark: int | None) -> None:
    """One commit of ours: rows as live Java gets them, in as many flushes."""
    check_writable(PaimonTable(table), False)
    fields = [(each.name, each.type, arrow_type(each.type)) for each in table.fields]
    keyed = bool(table.is_primary_key_table)
    schema = pa.schema([(name, kind) for name, _, kind in fields] + ([(_KIND, pa.string())] if keyed else []))
    layout = row_layout(schema, TargetTable.of(PaimonTable(table)), kind_column=_KIND if keyed else None)
    messages: list[Any] = []
    state, assigner = write_state(PaimonTable(table)), None
    if table.bucket_mode() == BucketMode.HASH_DYNAMIC:
        directory = TableDirectory.of(table)
        assigner = BucketAssigner(PaimonTable(table), replaces=False)
        assigner.follow(TableState(directory, directory.snapshots.get_latest_snapshot()).index)
    for rows in flushes:
        columns = [
            pa.array([arrow_value(row[index + 1], str(of_paimon), kind) for row in rows], kind)
            for index, (_, of_paimon, kind) in enumerate(fields)
        ]
        if keyed:
            columns.append(pa.array([row[0] for row in rows], pa.string()))
        writer = RecordWriter(PaimonTable(table), user, False, state, assigner=assigner)
        try:
            writer.write(layout.align(pa.RecordBatch.from_arrays(columns, schema=schema)))
            messages += writer.prepare()
        except PaimonStreamError:
            writer.abort()
            raise
        writer.close()
        last = max((file.max_sequence_number for each in messages for file in each.new_files), default=-1)
        state = WriteState(max(state.sequence, last), state.rescaled)
    if assigner is not None:
        messages += assigner.messages()
    settings = {} if watermark is None else {"watermark": watermark}
    commit_once(CommitRequest(PaimonTable(table), user, 1, messages, keep_empty=True, **settings))
    for name in (f"consumer-{user}", f"sink-{user}"):  # so that expiry does in both tables the same
        (Path(str(table.table_path)) / "consumer" / name).unlink(missing_ok=True)


def arrow_value(given: Any, of_paimon: str, kind: pa.DataType) -> Any:
    """A value of the corpus' JSON form as what pyarrow takes for a type."""
    if given is None:
        return None
    if of_paimon.startswith("VARIANT"):
        variant = GenericVariant.from_python(json.loads(given))
        return {"value": variant.value(), "metadata": variant.metadata()}
    if pa.types.is_struct(kind):
        return {each.name: arrow_value(given.get(each.name), "", each.type) for each in kind}
    if pa.types.is_map(kind):
        return [(arrow_value(key, "", kind.key_type), arrow_value(item, "", kind.item_type)) for key, item in given]
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return [arrow_value(each, "", kind.value_type) for each in given]
    if pa.types.is_decimal(kind):
        return Decimal(given)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return base64.b64decode(given)
    if pa.types.is_date(kind):
        return date.fromisoformat(given)
    if pa.types.is_time(kind):
        return time.fromisoformat(given)
    if pa.types.is_timestamp(kind):
        return _instant(given.removesuffix("Z"), kind)
    if pa.types.is_floating(kind):
        return float(given)
    return given


def _instant(text: str, kind: pa.TimestampType) -> int:
    """Since 1970, in the unit of the type: Python's own type ends with microseconds."""
    whole, _, fraction = text.partition(".")
    seconds = int(datetime.fromisoformat(whole).replace(tzinfo=timezone.utc).timestamp())
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[kind.unit]
    return seconds * 10**digits + int((fraction or "0").ljust(9, "0")[:digits] or 0)
