"""Changelogs that compactions make: applied one by one they give the rows, and each takes back what was there."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pypaimon.streaming import compact, stream_read_builder, stream_write_builder
from support.samples import SOAK
from support.tables.handles import catalog_with_database, create_table, read_with, write_with

pytestmark = [pytest.mark.slow, pytest.mark.soak]

EXAMPLES = 300 if SOAK else 2
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("a", pa.int64()), ("b", pa.int64())])
KINDED = COLUMNS.append(pa.field("_row_kind", pa.string()))
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "deduplicate by a": {"sequence.field": "a"},
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "aggregation": {"merge-engine": "aggregation", "fields.default-aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row"},
}
VALUES = st.one_of(st.none(), st.integers(-2, 2))
ROWS = st.lists(st.tuples(st.integers(0, 8), VALUES, VALUES, st.booleans()), min_size=1, max_size=8)
STEPS = st.lists(st.one_of(ROWS, ROWS, st.sampled_from(["due", "full"])), min_size=3, max_size=12)


class Followed:
    """A table, and the changes that its compactions report."""

    def __init__(self, directory: str, options: dict[str, str]) -> None:
        catalog = catalog_with_database(directory, "d")
        self.table = create_table(catalog, "t", COLUMNS, primary_keys=["id"], options=options, database="d")
        self.inserts_only = options.get("merge-engine") == "first-row"

    def write(self, rows: list[tuple[int, Any, Any, bool]]) -> None:
        found = [
            {"id": key, "a": a, "b": b, "_row_kind": "-D" if gone and not self.inserts_only else "+I"}
            for key, a, b, gone in rows
        ]
        write_with(stream_write_builder(self.table).with_commit_user("writer"), pa.Table.from_pylist(found, KINDED))

    def rows(self) -> dict[int, tuple[Any, Any]]:
        return {row["id"]: (row["a"], row["b"]) for row in self._read("latest-full")}

    def applied(self, *, updates_may_be_none: bool) -> dict[int, tuple[Any, Any]]:
        """The rows of all changes since the beginning, each of which must fit what is there."""
        rows: dict[int, tuple[Any, Any]] = {}
        taken: dict[int, tuple[Any, Any]] = {}
        for row in self.changes():
            key, values, kind = row["id"], (row["a"], row["b"]), row.get("_row_kind", "+I")
            if kind in ("-U", "-D"):
                assert rows.pop(key) == values, row
                taken = {key: values} if kind == "-U" else {}
                continue
            assert key not in rows, row
            assert (kind == "+U") == (key in taken), row
            assert kind == "+I" or updates_may_be_none or taken[key] != values, row
            rows[key], taken = values, {}
        assert not taken
        return rows

    def changes(self) -> list[dict[str, Any]]:
        return self._read("earliest")

    def _read(self, start: str) -> list[dict[str, Any]]:
        return read_with(stream_read_builder(self.table).with_start(start).with_end(latest=True))


@pytest.mark.parametrize(
    ("engine", "producer"),
    [(engine, "lookup") for engine in ENGINES]
    + [(engine, "full-compaction") for engine in ENGINES if engine != "first-row"],
)
@settings(max_examples=EXAMPLES, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
@given(steps=STEPS, trigger=st.integers(1, 4), small=st.sampled_from(["1 b", "128 mb"]), deduplicate=st.booleans())
def test_changes_give_the_rows(
    engine: str, producer: str, steps: list[Any], trigger: int, small: str, deduplicate: bool
) -> None:
    options = {
        **ENGINES[engine],
        "bucket": "1",
        "changelog-producer": producer,
        "changelog-producer.row-deduplicate": str(deduplicate).lower(),
        "num-sorted-run.compaction-trigger": str(trigger),
        "target-file-size": small,
    }
    with TemporaryDirectory() as directory:
        followed = Followed(directory, options)
        for step in [*steps, "full"]:
            if not isinstance(step, str):
                followed.write(step)
                continue
            compact(followed.table, full=step == "full")
            # What waits on level 0 is in neither.
            assert followed.applied(updates_may_be_none=not deduplicate) == followed.rows()


@pytest.mark.parametrize("engine", ENGINES)
def test_what_was_looked_up_is_reported_once(tmp_path: Path, engine: str) -> None:
    """Records report what changes when they leave level 0. A full compaction of the levels above reports nothing."""
    options = {**ENGINES[engine], "bucket": "1", "changelog-producer": "lookup"}
    followed = Followed(str(tmp_path), options)
    followed.write([(key, 1, 1, False) for key in range(500)])
    compact(followed.table)
    followed.write([(1, 2, 2, False), (500, 2, 2, False)])
    compact(followed.table)
    reported = followed.changes()
    report = compact(followed.table, full=True)
    assert report.compacted and followed.changes() == reported
    assert followed.applied(updates_may_be_none=False) == followed.rows()


def test_a_file_that_only_moves_has_its_rows_in_the_changelog_too(tmp_path: Path) -> None:
    options = {"bucket": "1", "changelog-producer": "lookup", "target-file-size": "1 b"}
    followed = Followed(str(tmp_path), options)
    followed.write([(1, 1, 1, False), (2, 2, 2, False)])
    report = compact(followed.table)
    assert report.before == report.after
    assert followed.applied(updates_may_be_none=False) == {1: (1, 1), 2: (2, 2)}
    assert not compact(followed.table).compacted
