"""`Trigger.AvailableNow`, run after run, and restarts whose start is gone, without Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import PositionExpiredError, StreamConfigError, TableChangedError
from pypaimon.streaming.metadata.manifests import ManifestReader
from support.corpus.cases import load
from support.spark.driver import Driver, Offset
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

FULL_STARTS = {
    "snapshot": {"scan__mode": "from-snapshot-full", "scan__snapshot-id": "2"},
    "tag": {"start__tag": "two", "start__full": "true"},
    "file time": {"scan__file-creation-time-millis": "0"},
    "creation time": {"scan__mode": "from-creation-timestamp", "scan__creation-time-millis": "0"},
    "latest": {},
    "earliest": {"start": "earliest"},
}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three snapshots of a row each, the second one with a tag."""
    table = Table(tmp_path / "warehouse").commit_each(range(3))
    table.handle().create_tag("two", 2)
    return table


def run(table: Table | dict[str, str], reached: Offset | None, **more: str) -> tuple[list[Any], Offset]:
    """A run until nothing is left: its rows, and the offset at which the next one goes on."""
    driver = Driver(table, **more)
    driver.reader.prepareForTriggerAvailableNow()
    begin = reached or driver.initial()
    rows = []
    while (end := driver.latest(begin)) != begin:
        rows += driver.rows(begin, end)
        begin = end
    return rows, begin


@pytest.mark.parametrize("limits", [{}, {"maxFilesPerTrigger": "1"}], ids=["whole", "limited"])
@pytest.mark.parametrize("start", FULL_STARTS.values(), ids=FULL_STARTS)
def test_each_run_comes_as_far_as_the_table(table: Table, start: dict[str, str], limits: dict[str, str]) -> None:
    rows, offset = run(table, None, **start, **limits)
    assert sorted(row[0] for row in rows) == [0, 1, 2]
    assert run(table, offset, **start, **limits) == ([], offset)
    table.commit_each((3, 4))
    rows, offset = run(table, offset, **start, **limits)
    assert sorted(row[0] for row in rows) == [3, 4]


@pytest.mark.parametrize("frozen", [False, True], ids=["following", "available now"])
def test_a_state_that_limits_cut_into_many_batches_is_planned_once(
    table: Table, frozen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, planned = ManifestReader.entries, list[int]()

    def entries(reader: ManifestReader, manifests: pa.Table, *more: Any) -> pa.Table:
        planned.append(manifests.num_rows)
        return plain(reader, manifests, *more)

    monkeypatch.setattr(ManifestReader, "entries", entries)
    table.commit_each(range(3, 6))
    driver = Driver(table, maxFilesPerTrigger="1")
    if frozen:
        driver.reader.prepareForTriggerAvailableNow()
    assert [[row[0] for row in batch] for batch in driver.batches()] == [[number] for number in range(6)]
    assert len(planned) == 1


def test_a_run_does_not_end_before_what_was_there(table: Table) -> None:
    driver = Driver(table, start="earliest")
    driver.reader.prepareForTriggerAvailableNow()
    table.rollback(1)
    with pytest.raises(TableChangedError, match="it ends at snapshot 1"):
        driver.batches()


def test_changes_after_the_newest_compacted_state_come() -> None:
    warehouse = load("java-2.1", "compacted_full").warehouse
    place = {"warehouse": str(warehouse), "table": "d.t"}
    rows, offset = run(place, None, start="compacted-full")
    batches = Driver(place, start="compacted-full").batches()
    assert len(batches) == 1
    assert sorted(map(repr, rows)) == sorted(map(repr, batches[0]))
    latest = max(int(path.name.rpartition("-")[2]) for path in warehouse.glob("d.db/t/snapshot/snapshot-*"))
    assert offset["snapshot"] == latest + 1


@pytest.mark.parametrize("inside", [False, True])
def test_a_rollback_is_an_error(table: Table, inside: bool) -> None:
    _, offset = cut_batch(table, inside)
    for keep in (3, 1):
        table.rollback(keep)
        with pytest.raises(TableChangedError, match="rolled back"):
            run(table, offset)
    table.commit([7])
    with pytest.raises(TableChangedError):
        run(table, offset)
    for number in range(3):
        table.commit([number + 20])
    with pytest.raises(TableChangedError, match="rolled back"):
        run(table, offset)


@pytest.mark.parametrize("keep", [0, 1, 2])
@pytest.mark.parametrize("is_running", [False, True])
def test_a_run_whose_end_is_rolled_back_fails_at_once(table: Table, is_running: bool, keep: int) -> None:
    start = FULL_STARTS["snapshot"] | {"scan__snapshot-id": "1"}
    driver = Driver(table, maxFilesPerTrigger="1", **start)
    driver.reader.prepareForTriggerAvailableNow()
    offset = driver.initial()
    if is_running:
        offset = driver.latest(offset)
        assert offset["snapshot"] == 2
    cut_off(table, keep)
    with pytest.raises(TableChangedError, match="dropped"):
        while (end := driver.latest(offset)) != offset:
            offset = end


@pytest.mark.parametrize("keep", [0, 1, 2])
@pytest.mark.parametrize("inside", [False, True])
def test_a_batch_whose_end_is_rolled_back_is_not_made_again(table: Table, inside: bool, keep: int) -> None:
    begin, end = cut_batch(table, inside)
    cut_off(table, keep)
    with pytest.raises(TableChangedError, match="dropped"):
        Driver(table, start="earliest").rows(begin, end)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("option", [{"streaming__read__snapshot__delay": "1 h"}, {"scan__bounded__watermark": "15"}])
def test_a_batch_is_made_again_whatever_holds_back_others(table: Table, inside: bool, option: dict[str, str]) -> None:
    begin, end = cut_batch(table, inside)
    for number in table.ids():
        path = table.snapshot_path(number)
        path.write_text(json.dumps({**json.loads(path.read_text()), "watermark": 10 * number}))
    rows = Driver(table, start="earliest").rows(begin, end)
    again = Driver(table, start="earliest", **option)
    assert again.rows(begin, end) == rows
    table.commit([20])
    assert again.latest(end) == end


def cut_batch(table: Table, inside: bool) -> tuple[Offset, Offset]:
    """A batch from the beginning of the table to its end, or into its last snapshot."""
    table.commit_files([10, 11, 12])
    driver = Driver(table, start="earliest", **({"maxFilesPerTrigger": "4"} if inside else {}))
    begin, end = driver.first()
    assert ("unit" in end) is inside
    return begin, end


def cut_off(table: Table, keep: int) -> None:
    """Roll back, or with 0 delete the snapshots, as a drop begins."""
    if keep:
        table.rollback(keep)
    else:
        shutil.rmtree(table.path / "snapshot")


@pytest.mark.parametrize("begun_empty", [False, True])
@pytest.mark.parametrize("commits", [0, 1, 5])
def test_a_recreated_table_is_an_error(tmp_path: Path, begun_empty: bool, commits: int) -> None:
    table = Table(tmp_path / "warehouse")
    if not begun_empty:
        table.commit([1])
    _, offset = run(table, None)
    table.recreate()
    table._writer = table.handle()
    table.commit_each(range(commits))
    with pytest.raises(TableChangedError, match="re-created"):
        run(table, offset)
    with pytest.raises(TableChangedError, match="re-created"):
        Driver(table).latest(offset)


# ---- starts that are gone ----


@pytest.mark.parametrize("available_now", [True, False])
@pytest.mark.parametrize("full", ["true", "false"])
def test_a_checkpoint_needs_no_tag(table: Table, full: str, available_now: bool) -> None:
    start = {"start__tag": "two", "start__full": full}
    driver = Driver(table, **start)
    first, offset = driver.first()
    rows = driver.rows(first, offset)
    table.handle().delete_tag("two")
    table.commit([3])
    again = Driver(table, **start)
    if available_now:
        again.reader.prepareForTriggerAvailableNow()
    assert again.rows(again.initial(), offset) == rows
    assert [row[0] for row in again.rows(offset, again.latest(offset))] == [3]
    with pytest.raises(StreamConfigError, match="There is no tag 'two'"):
        again.latest(again.initial())
    new = Driver(table, **start)
    with pytest.raises(StreamConfigError, match="There is no tag 'two'"):
        new.latest(new.initial())


def test_the_state_of_a_tag_is_read_on_only_with_the_tag(table: Table) -> None:
    start = {"start__tag": "two", "start__full": "true", "maxFilesPerTrigger": "1"}
    driver = Driver(table, **start)
    offset = driver.latest(driver.initial())
    kept = {number: table.snapshot_path(number).read_bytes() for number in (1, 2)}
    for number in kept:
        table.snapshot_path(number).unlink()
    (table.path / "snapshot" / "EARLIEST").write_text("3")
    assert sorted(row[0] for row in run(table, offset, **start)[0]) == [1, 2]
    table.handle().delete_tag("two")
    for more in (start, {**start, "start__tag": "other"}):
        with pytest.raises(PositionExpiredError, match=r"Tag '(two|other)' does not keep it"):
            Driver(table, **more).latest(offset)
    table.snapshot_path(2).write_bytes(kept[2])
    assert sorted(row[0] for row in run(table, offset, **start)[0]) == [1, 2]
