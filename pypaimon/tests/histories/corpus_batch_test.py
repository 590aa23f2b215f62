"""Batch ranges of Java's tables: ours gives the rows that Java gives, or an error where Java has one.

One in 64 of each table as a stream and one in 192 by the source for Spark; in the long form all.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cache
from itertools import combinations, pairwise
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import (
    IncrementalDiffScanner,
    PaimonStreamError,
    StreamReadBuilder,
    UnsupportedTableError,
    stream_read_builder,
)
from pypaimon.streaming.options.between import Ends, between_of_options
from support.corpus.cases import load, scenario_names, unpack
from support.corpus.values import column_values, wanted_value
from support.samples import SOAK, is_drawn
from support.spark.driver import batch_tasks

pytestmark = [pytest.mark.slow, pytest.mark.soak]

ARCHIVE = "java-2.1-more"
EPOCH = datetime.fromtimestamp(0, tz=timezone.utc)
Row = tuple[Any, ...]
"""Row kind, then the values."""


@dataclass(frozen=True, slots=True)
class BatchRange:
    """One batch read of a scenario.

    Attributes:
        columns: Names and SQL types of what comes out; an empty type is not known.
        projection: The columns that are asked for, or None.
        rows: What Java returns; None: an error.
    """

    scenario: str
    name: str
    options: dict[str, str]
    system_table: str | None
    columns: tuple[tuple[str, str], ...]
    projection: tuple[str, ...] | None
    rows: tuple[Row, ...] | None
    java_error: str

    @property
    def is_diff(self) -> bool:
        """Whether two states are compared, which those of tags always are."""
        if self.options.get("incremental-between-tag-to-snapshot") == "true":
            return False
        ends = self.options.get("incremental-between", "0").split(",")
        numbers = all(end.removeprefix("-").isdecimal() for end in ends)
        return not numbers or self.options.get("incremental-between-scan-mode") == "diff"


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What ours returns.

    Attributes:
        rows: Its rows; None: an error.
    """

    rows: tuple[Row, ...] | None
    error: PaimonStreamError | None = None


@cache
def ranges(scenario: str) -> tuple[BatchRange, ...]:
    """The batch ranges of a scenario; most scenarios have none."""
    raw = json.loads((unpack(ARCHIVE) / scenario / "expect.json").read_text())
    fields = {field["name"]: field["type"] for field in raw["schema"]["fields"]}
    return tuple(_range(scenario, each, fields) for each in raw.get("batch", ()))


def scenarios() -> list[str]:
    index = json.loads((unpack(ARCHIVE) / "index.json").read_text())
    return [entry["name"] for entry in index["scenarios"] if ranges(entry["name"])]


def read(case: BatchRange, *, kinds: bool = True, cut: bool = False) -> BatchOutcome:
    """Read a range as a stream, with the builder's `with_range`.

    Args:
        kinds: Whether rows have their kind; else they are values only.
        cut: Plans are as small as can be, and each is read by a stream that goes on behind the one before.
    """
    return _outcome(case, lambda: (_parts if cut else _batches)(_range_builder(case, kinds)))


def read_by_spark(case: BatchRange, *, kinds: bool = True) -> BatchOutcome:
    """As `read`, by the batch source for Spark, without Spark."""
    table = "d.t" + (f"${case.system_table}" if case.system_table else "")
    options = {"warehouse": str(unpack(ARCHIVE) / case.scenario / "wh"), "table": table, **case.options}
    if case.projection is not None:
        options["columns"] = ",".join(case.projection)
    tasks = {**options, "include-row-kind": str(kinds).lower()}
    return _outcome(case, lambda: (batch for task in batch_tasks(tasks) for batch in task))


def _range_builder(case: BatchRange, kinds: bool) -> StreamReadBuilder:
    between = between_of_options(case.options)
    assert between is not None
    start, end = between.start, between.end
    if between.ends is Ends.TIMES:
        start, end = (EPOCH + timedelta(milliseconds=int(each or 0)) for each in (start, end))
    catalog = CatalogFactory.create({"warehouse": str(unpack(ARCHIVE) / case.scenario / "wh")})
    view: Any = case.system_table
    builder = stream_read_builder(catalog.get_table("d.t"), view).with_projection(case.projection)
    builder.with_include_row_kind(kinds)
    return builder.with_range(start, end, between.mode.value, tag_to_snapshot=between.tag_to_snapshot)


def _batches(builder: StreamReadBuilder) -> Iterator[pa.Table]:
    with builder.open_sync() as stream:
        yield from (batch.data for batch in stream)


def _parts(builder: StreamReadBuilder) -> Iterator[pa.Table]:
    read = builder.with_limits(max_splits=1).new_read()
    while True:
        with builder.new_streaming_scan() as scan:
            plan = next(iter(scan.stream_sync()), None)
        if plan is None:
            return
        yield read.to_arrow(plan.splits())
        builder = builder.copy().with_start(position=plan.position.to_json())


def _outcome(case: BatchRange, batches: Callable[[], Iterable[pa.Table | pa.RecordBatch]]) -> BatchOutcome:
    types = dict(case.columns)
    rows: list[Row] = []
    try:
        for batch in batches():
            names = batch.schema.names
            values = [column_values(batch.column(name), types.get(name, "")) for name in names]
            rows += zip(*values, strict=True)
    except PaimonStreamError as error:
        return BatchOutcome(None, error)
    return BatchOutcome(tuple(rows))


def counted(rows: Iterable[Row]) -> Counter[str]:
    """Rows as a multiset; nested values have no hash."""
    return Counter(json.dumps(row, ensure_ascii=False) for row in rows)


def _range(scenario: str, raw: dict[str, Any], fields: dict[str, str]) -> BatchRange:
    columns = tuple((name, fields.get(name, "")) for name in raw.get("columns", ()))
    rows = None
    if "rows" in raw:
        rows = tuple(
            (kind, *(wanted_value(value, sql_type) for value, (_, sql_type) in zip(values, columns, strict=True)))
            for kind, *values in raw["rows"]
        )
    error = raw.get("error")
    return BatchRange(
        scenario,
        raw["name"],
        raw["options"],
        raw.get("system_table"),
        columns,
        None if raw.get("projection") is None else tuple(name for name, _ in columns),
        rows,
        f"{error['class']}: {error['message']}" if error else "",
    )


ONE_IN, ONE_IN_BY_SPARK = (1, 1) if SOAK else (128, 384)
CHAIN_TABLES = ("chain_table", "chain_table_dv")
Reader = Callable[..., BatchOutcome]


def differences(case: BatchRange, read: Reader) -> str:
    """How ours differs from Java; empty: not at all.

    A difference of states is Java's as values: what Java says of its kinds is how rows are stored, and not what became
    of them. Those of a system table are in a column, and Java's.
    """
    kinds = case.system_table is not None or not case.is_diff
    ours = read(case, kinds=kinds)
    if ours.rows is None or case.rows is None:
        return "" if ours.rows is case.rows else f"Java: {case.java_error or 'rows'}, ours: {ours.error or ours.rows}"
    found, wanted = counted(ours.rows), counted(row if kinds else row[1:] for row in case.rows)
    return "" if found == wanted else f"missing: {dict(wanted - found)}, more: {dict(found - wanted)}"


@pytest.mark.parametrize("scenario", [each for each in scenarios() if each not in CHAIN_TABLES])
@pytest.mark.parametrize(("read", "one_in"), [(read, ONE_IN), (read_by_spark, ONE_IN_BY_SPARK)])
def test_ranges_of_a_table(scenario: str, read: Reader, one_in: int) -> None:
    cases = [case for case in ranges(scenario) if is_drawn(f"{scenario}/{case.name}", one_in)]
    wrong = {case.name: problem for case in cases if (problem := differences(case, read))}
    assert not wrong


@pytest.mark.parametrize("scenario", [each for each in scenarios() if each not in CHAIN_TABLES])
def test_ranges_are_cut_anywhere_and_gone_on_with(scenario: str) -> None:
    cases = [case for case in ranges(scenario) if is_drawn(f"cut {scenario}/{case.name}", ONE_IN_BY_SPARK)]
    for case in cases:
        whole, parts = read(case), read(case, cut=True)
        assert (whole.rows is None) is (parts.rows is None), case.name
        assert counted(whole.rows or ()) == counted(parts.rows or ()), case.name


@pytest.mark.parametrize("scenario", CHAIN_TABLES)
def test_chain_tables_are_refused_by_name(scenario: str) -> None:
    for case in ranges(scenario):
        outcome = read_by_spark(case)
        assert isinstance(outcome.error, UnsupportedTableError)
        assert "batch reads are of one branch" in str(outcome.error)


@pytest.mark.parametrize("scenario", scenario_names(ARCHIVE))
def test_kinds_turn_one_state_into_the_other(scenario: str) -> None:
    """Whatever compactions, overwrites and deletes lie in between; tables that cannot be read, or compared, aside."""
    directory = load(ARCHIVE, scenario).warehouse / "d.db" / "t" / "snapshot"
    ids = sorted(int(path.name.removeprefix("snapshot-")) for path in directory.glob("snapshot-*"))
    pairs = [each for each in combinations(ids, 2) if is_drawn(f"{scenario} {each}", ONE_IN)]
    for start, end in pairs:
        difference = _at(scenario, {"incremental-between": f"{start},{end}", "incremental-between-scan-mode": "diff"})
        changes = read(difference)
        if isinstance(changes.error, UnsupportedTableError):
            continue
        assert changes.rows is not None, changes.error
        gone, came = counted(_gone(changes.rows)), counted(_came(changes.rows))
        before, after = state(scenario, start), state(scenario, end)
        assert not gone - before, (start, end)
        assert before - gone + came == after, (start, end)
        if not load(ARCHIVE, scenario).primary_keys:
            assert not counted(read(difference, kinds=False).rows or ()) - after, (start, end)


@pytest.mark.parametrize("scenario", ["range_dedup_none", "range_dedup_lookup", "range_dedup_full-compaction"])
def test_the_scanner_of_differences_turns_one_state_into_the_other(scenario: str) -> None:
    """Whatever no compaction has turned into changelog yet."""
    catalog = CatalogFactory.create({"warehouse": str(unpack(ARCHIVE) / scenario / "wh")})
    changes = IncrementalDiffScanner(catalog.get_table("d.t"))
    reader = stream_read_builder(catalog.get_table("d.t")).new_read()
    for start, end in pairwise(range(1, 8)):
        rows = reader.to_arrow(changes.scan(start, end).splits()).to_pylist()
        told = [(row["_row_kind"], row["id"], row["v"]) for row in rows]
        assert state(scenario, start) - counted(_gone(told)) + counted(_came(told)) == state(scenario, end)


def _gone(rows: Iterable[Row]) -> Iterator[Row]:
    return (row[1:] for row in rows if row[0] in ("-U", "-D"))


def _came(rows: Iterable[Row]) -> Iterator[Row]:
    return (row[1:] for row in rows if row[0] in ("+I", "+U"))


def state(scenario: str, snapshot_id: int) -> Counter[str]:
    """All that is committed at a snapshot."""
    outcome = read_by_spark(_at(scenario, {"scan.snapshot-id": str(snapshot_id)}), kinds=False)
    assert outcome.rows is not None, outcome.error
    return counted(outcome.rows)


def _at(scenario: str, options: dict[str, str]) -> BatchRange:
    fields = tuple(load(ARCHIVE, scenario).fields)
    return BatchRange(scenario, "", options, None, fields, None, (), "")
