"""Batch ranges of the golden corpus: what Java returns between two snapshots, tags or times, and what ours do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory

from pypaimon.streaming import PaimonStreamError, StreamReadBuilder, stream_read_builder
from pypaimon.streaming.options.between import Ends, between_of_options
from support.corpus.cases import unpack
from support.corpus.values import column_values, wanted_value
from support.spark.driver import batch_tasks

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
        java_error: Java's error.
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
        error: The error, if it is one of ours.
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
    """The scenarios that have batch ranges."""
    index = json.loads((unpack(ARCHIVE) / "index.json").read_text())
    return [entry["name"] for entry in index["scenarios"] if ranges(entry["name"])]


def read(case: BatchRange, *, kinds: bool = True, cut: bool = False) -> BatchOutcome:
    """Read a range as a stream, with the builder's `with_range`.

    Args:
        case: What to read.
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
