"""Compaction with `sequence.snapshot-ordering`: the record of the later snapshot stays the newer one."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pypaimon.streaming import UnsupportedTableError, compact, stream_write_builder
from pypaimon.streaming.compaction import rescale
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.live_files import LiveEntries, live_buckets
from pypaimon.streaming.compaction.task_pickers import task_picker
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.crash.crashing_file_io import Killed, MortalFileIO
from support.samples import SOAK, sample_seed
from support.tables.rescaled_tables import KINDED, altered, created, rows, state

pytestmark = [pytest.mark.slow, pytest.mark.soak]

ORDERED = {"sequence.snapshot-ordering": "true", "write-only": "true"}
KINDS: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "first-row": {"merge-engine": "first-row", "ignore-delete": "true"},
    "lookup": {"changelog-producer": "lookup"},
    "full-compaction": {"changelog-producer": "full-compaction"},
    "deletion vectors": {"deletion-vectors.enabled": "true"},
}
LAST, STEP = 120, 1 if SOAK else 17
Rows = list[tuple[int, int, bool]]


def write(writer: Any, changed: Rows, v: int) -> None:
    found = [{"id": key, "p": p, "v": v, "_row_kind": "-D" if gone else "+I"} for key, p, gone in changed]
    writer.write(pa.Table.from_pylist(found, KINDED))
    writer.commit()


CHANGES = st.tuples(
    st.integers(0, 1),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1), st.booleans()), min_size=1, max_size=8),
)
STEPS = st.lists(st.one_of(CHANGES, st.sampled_from(["due", "full", "rescale"])), min_size=4, max_size=14)


@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=200 if SOAK else 3, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck)
)
@given(steps=STEPS, small=st.sampled_from(["1 b", "128 mb"]))
def test_two_writers_with_crossing_numbers(kind: str, steps: list[Any], small: str) -> None:
    options = {**KINDS[kind], **ORDERED, "target-file-size": small, "num-sorted-run.compaction-trigger": "2"}
    keeps_first = kind == "first-row"
    model: dict[tuple[int, int], int] = {}
    with TemporaryDirectory() as directory, ExitStack() as stack:
        path, buckets = Path(directory), 2
        table = created(path, options)
        writers = [stack.enter_context(_writer(table, user)) for user in ("a", "b")]
        for turn, step in enumerate([*steps, "full"]):
            if isinstance(step, tuple):
                who, changed = step
                # The numbers of the first writer are far greater.
                for _ in range(1 if who else 5):
                    write(writers[who], changed, turn)
                for key, p, gone in changed:
                    if keeps_first:
                        if not gone:
                            model.setdefault((p, key), turn)
                    elif gone:
                        model.pop((p, key), None)
                    else:
                        model[p, key] = turn
                continue
            if step == "rescale":
                buckets += 1
                table = altered(table, path, buckets)
                assert not rescale(table, buckets).conflicts
                writers = [stack.enter_context(_writer(table, f"{user}{buckets}")) for user in ("a", "b")]
            else:
                assert not compact(table, full=step == "full").conflicts
            if step == "full" or (kind not in ("full-compaction",) and step == "due"):
                assert state(table) == sorted((*place, v) for place, v in model.items())
                if "changelog-producer" in options:
                    assert folded(table) == state(table)


def _writer(table: Any, user: str) -> Any:
    return stream_write_builder(table).with_commit_user(user).open_sync()


def folded(table: Any) -> list[tuple[int, int, int]]:
    found: dict[tuple[int, int], int] = {}
    for row in rows(table, "earliest"):
        if row["_row_kind"] in ("+I", "+U"):
            found[row["p"], row["id"]] = row["v"]
        else:
            found.pop((row["p"], row["id"]), None)
    return sorted((*place, v) for place, v in found.items())


def crossing(directory: Path, kind: str) -> Any:
    table = created(directory, {**KINDS[kind], **ORDERED})
    with _writer(table, "a") as first, _writer(table, "b") as second:
        for turn in range(3):
            write(first, [(key, p, False) for key in range(12) for p in (0, 1)], turn)
        write(second, [(key, p, key == 3) for key in range(6) for p in (0, 1)], 9)
    return table


EXPECTED = sorted(
    [(p, key, 9) for p in (0, 1) for key in (0, 1, 2, 4, 5)] + [(p, key, 2) for p in (0, 1) for key in range(6, 12)]
)


def test_records_get_their_snapshots_and_the_commit_gives_no_number(tmp_path: Path) -> None:
    table = crossing(tmp_path, "deduplicate")
    compact(table, full=True)
    directory = TableDirectory.of(table)
    entries = LiveEntries().look(directory, directory.snapshots.get_latest_snapshot())
    assert set(entries["min_sequence_number"].to_pylist()) == {3}
    assert set(entries["max_sequence_number"].to_pylist()) == {4}
    assert state(table) == EXPECTED


def test_a_process_dies_at_every_request(tmp_path: Path) -> None:
    for steps in range(LAST - 1 - sample_seed() % STEP, 0, -STEP):
        table = crossing(tmp_path / str(steps), "lookup")
        dying = table.copy({})
        dying.file_io = MortalFileIO(steps)
        try:
            compact(dying, full=True)
        except Killed:
            compact(table, full=True)
        assert state(table) == folded(table) == EXPECTED


def test_rows_that_were_rescaled_are_older_than_those_of_later_commits(tmp_path: Path) -> None:
    table = crossing(tmp_path, "deduplicate")
    table = altered(table, tmp_path, 1)
    assert not rescale(table, 1).conflicts
    assert state(table) == EXPECTED
    with _writer(table, "c") as writer:
        write(writer, [(key, p, False) for key in range(12) for p in (0, 1)], 50)
    for _ in range(2):
        assert state(table) == [(p, key, 50) for p in (0, 1) for key in range(12)]
        compact(table, full=True)


def test_a_file_older_than_the_option_is_refused_when_it_is_picked(tmp_path: Path) -> None:
    """Its smallest sequence number is no snapshot."""
    table = crossing(tmp_path, "deduplicate")
    given, directory = PaimonTable(table), TableDirectory.of(table)
    entries = LiveEntries().look(directory, directory.snapshots.get_latest_snapshot())
    old = [
        replace(bucket, files=tuple(replace(file, read=replace(file.read, file_source=None)) for file in bucket.files))
        for bucket in live_buckets(given, entries)
    ]
    picker = task_picker(given, FileReader(given, directory, lambda: None))
    with pytest.raises(UnsupportedTableError, match="older than the option"):
        list(picker.tasks(old, full=True))


def test_postponed_buckets_are_refused_before_a_byte_is_written(tmp_path: Path) -> None:
    table = created(tmp_path, {**ORDERED, "bucket": "-2"})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UnsupportedTableError, match="postponed buckets"):
        compact(table)
    assert sorted(tmp_path.rglob("*")) == before
