"""Records expire in our compactions where they do in those of live Java, with the same changes."""

from __future__ import annotations

import shutil
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import compact, stream_read_builder, stream_write_builder
from support.java.live import LiveJava
from support.tables.handles import read_with, write_with

pytestmark = pytest.mark.java

FUTURE, PAST = 4_000_000_000, 1_000
EXPIRY = {"record-level.expire-time": "1 h", "record-level.time-field": "t"}
KINDS: dict[str, tuple[str, dict[str, str]]] = {
    "none": ("INT", {}),
    "lookup": ("BIGINT", {"changelog-producer": "lookup"}),
    "full-compaction": ("TIMESTAMP(6)", {"changelog-producer": "full-compaction"}),
    "first-row": ("TIMESTAMP(3) WITH LOCAL TIME ZONE", {"merge-engine": "first-row", "changelog-producer": "lookup"}),
    "vectors": ("TIMESTAMP(6)", {"deletion-vectors.enabled": "true"}),
    "vectors, lookup": ("TIMESTAMP(3)", {"deletion-vectors.enabled": "true", "changelog-producer": "lookup"}),
    "sums, lookup": (
        "TIMESTAMP(0)",
        {
            "changelog-producer": "lookup",
            "merge-engine": "aggregation",
            "fields.v.aggregate-function": "sum",
            "fields.t.aggregate-function": "last_value",
        },
    ),
}
Row = tuple[int, Any, int, str]
MANY: list[Row] = [(100 + number, FUTURE, number * 7919 % 10007, "+I") for number in range(2000)]
"""So many that what is written later is compacted to the level below."""


class Twins:
    """A table that Java compacts, and a copy that is compacted here; each write goes into both."""

    def __init__(self, java: LiveJava, directory: Path, kind: str) -> None:
        self.java = java
        self.time, options = KINDS[kind]
        self.kinded = kind != "first-row"
        fields = [["k", "BIGINT NOT NULL"], ["t", self.time], ["v", "INT"]]
        java.call(
            "create", warehouse=str(directory / "java"), fields=fields, partition_keys=[],
            primary_keys=["k"], options={"bucket": "1", "write-only": "true", **options},
        )  # fmt: skip
        shutil.copytree(directory / "java", directory / "ours")
        self.javas, self.ours = (
            CatalogFactory.create({"warehouse": str(directory / name)}).get_table("d.t") for name in ("java", "ours")
        )

    def write(self, *rows: Row) -> None:
        columns = {
            "k": [row[0] for row in rows],
            "t": [self._time(row[1]) for row in rows],
            "v": pa.array([row[2] for row in rows], pa.int32()),
        }
        if self.kinded:
            columns["_row_kind"] = [row[3] for row in rows]
        for table in (self.javas, self.ours):
            write_with(stream_write_builder(table).with_commit_user("writer"), pa.table(columns))

    def compact(self, options: dict[str, str], *, full: bool) -> None:
        self.java.call("compact", full=full, options={"write-only": "false", **options})
        compact(self.ours.copy(options), full=full)

    def row(self, key: int, time: int, value: int) -> dict[str, Any]:
        return {"_row_kind": "+I", "k": key, "t": self._time(time).replace(tzinfo=None), "v": value}

    def check(self) -> None:
        for start in ("latest-full", "earliest"):
            assert read(self.ours, start) == read(self.javas, start), start

    def _time(self, seconds: int | None) -> Any:
        if seconds is None or self.time == "INT":
            return seconds if seconds is None else min(seconds, 2**31 - 1)
        if self.time == "BIGINT":
            return seconds * 1000 if seconds == FUTURE else seconds
        zone = timezone.utc if "ZONE" in self.time else None
        return datetime.fromtimestamp(seconds, timezone.utc).replace(tzinfo=zone)


def read(table: Any, start: str) -> list[Any]:
    rows = read_with(stream_read_builder(table).with_start(start).with_end(latest=True))
    return rows if start == "earliest" else sorted(rows, key=lambda row: str(row["k"]))


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.nightly) if ", lookup" in kind else kind for kind in KINDS]
)
def test_records_expire_as_in_java(java: LiveJava, tmp_path: Path, kind: str) -> None:
    twins = Twins(java, tmp_path, kind)
    twins.write(
        (1, FUTURE, 1, "+I"), (2, PAST, 2, "+I"), (3, None, 3, "+I"), (4, FUTURE, 4, "+I"), (5, PAST, 5, "+I"), *MANY
    )
    twins.compact({}, full=True)
    twins.write((1, PAST, 11, "+I"), (2, FUTURE, 12, "+I"), (6, PAST, 16, "+I"), (7, FUTURE, 17, "+I"))
    # What is above, and expired, is not there for what is compacted below.
    twins.compact(EXPIRY, full=kind == "full-compaction")
    if kind.startswith("vectors"):
        # Java does not mark it: its key has two rows until all of the bucket is compacted.
        rows = read(twins.ours, "latest-full")
        assert [row for row in read(twins.javas, "latest-full") if row not in rows] == [twins.row(2, PAST, 2)]
        assert len(read(twins.javas, "latest-full")) == len(rows) + 1
        assert kind == "vectors" or read(twins.ours, "earliest") == read(twins.javas, "earliest")
    else:
        twins.check()
    gone = "-D" if kind in ("none", "lookup", "full-compaction") else "+I"
    twins.write((4, PAST, 24, gone), (3, FUTURE, 23, "+I"), (8, None, 28, "+I"))
    twins.compact(EXPIRY, full=True)
    twins.check()
    rows = {row["k"]: row["v"] for row in read(twins.ours, "latest-full")}
    assert not {5, 6} & rows.keys()
    assert {1, 4, 7, 8} <= rows.keys()
