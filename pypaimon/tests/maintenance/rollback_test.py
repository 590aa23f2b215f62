"""Rollbacks of tables that this library and pypaimon write: what they delete, in which order, and what readers get."""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pypaimon.catalog.catalog_environment import CatalogEnvironment

from pypaimon.streaming import (
    ConsumerManager,
    CorruptTableError,
    MaintenancePolicy,
    StreamConfigError,
    TableChangedError,
    maintain,
)
from pypaimon.streaming.consumers.consumer_manager import Consumer
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from pypaimon.streaming.errors import MaintenanceConflictError
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.maintenance import create_branch, create_tag, rollback
from pypaimon.streaming.maintenance.completeness import check_complete
from pypaimon.streaming.maintenance.retention_pin import pinned
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from support.crash.crashing_file_io import Killed, MortalFileIO
from support.samples import SOAK
from support.stores.fault_file_io import Call, FaultFileIO
from support.tables.named_files import files_of, needed_files
from support.tables.streamed_table import Table, at_every_change, available, rows

pytestmark = [pytest.mark.slow, pytest.mark.soak]

LATEST_ONLY = MaintenancePolicy(min_snapshots=1, max_snapshots=1)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A keyed table with five snapshots."""
    table = Table(tmp_path, "t", primary_key=True, changelog_producer="input")
    for key in range(5):
        table.commit([key])
    return table


def rows_at(table: Table, keys: int) -> list[Any]:
    return [row for row in table.rows() if row[0] < keys]


def consumers(table: Table) -> ConsumerManager:
    return ConsumerManager(table.handle().file_io, str(table.path))


def is_whole(table: Table) -> bool:
    """Whether a table has a latest snapshot, and all files that its snapshots and tags need."""
    return bool(table.ids()) and needed_files(table.path) <= files_of(table.path)


def test_a_listing_without_the_latest_snapshot_is_not_believed(table: Table) -> None:
    """Otherwise the rollback would be reported, and the latest snapshot would stay."""
    file_io = FaultFileIO()
    latest = table.snapshot_path(5).name

    def old_listing(call: Call) -> Any:
        found = call.answer()
        is_listing = (call.kind, call.name) == ("list", "snapshot")
        return [each for each in found if not each.path.endswith(latest)] if is_listing else found

    file_io.wherever(old_listing)
    before = files_of(table.path)
    with pytest.raises(MaintenanceConflictError, match="snapshot 5 was not listed, but is there"):
        rollback(table.handle(file_io), snapshot_id=3)
    assert files_of(table.path) == before and table.ids() == [1, 2, 3, 4, 5]
    file_io.wherever(None)
    assert rollback(table.handle(file_io), snapshot_id=3).deleted_snapshots == (4, 5)


def test_later_snapshots_changelogs_and_tags_go(table: Table) -> None:
    expected = rows_at(table, 3)
    for name, number in (("early", 2), ("late", 5)):
        table.handle().create_tag(name, number)
    report = rollback(table.handle(), snapshot_id=3)
    assert report.deleted_snapshots == (4, 5) and report.deleted_tags == ("late",) and not report.restored
    assert table.ids() == [1, 2, 3] and table.rows() == expected
    assert (table.path / "snapshot" / "LATEST").read_text() == "3"
    assert sorted(path.name for path in (table.path / "tag").iterdir()) == ["tag-early"]
    assert not list((table.path / "consumer").glob("*")), "no pin is left"
    assert table.commit([9]) == 4


def test_a_tag_that_java_has_made_of_a_snapshot_with_a_uuid_is_of_that_snapshot(table: Table) -> None:
    """Java 1.4 leaves `uuid`, which it does not know, out of the tag."""
    assert table.snapshot(3)["uuid"]
    (table.path / "tag").mkdir()
    value = {name: given for name, given in table.snapshot(3).items() if name != "uuid"}
    (table.path / "tag" / "tag-by-java").write_text(json.dumps(value))
    create_branch(table.handle(), "trial", tag="by-java")
    assert json.loads((table.path / "branch/branch-trial/snapshot/snapshot-3").read_text()) == table.snapshot(3)
    expected = rows_at(table, 3)
    report = rollback(table.handle(), tag="by-java")
    assert not report.restored and report.deleted_snapshots == (4, 5) and table.rows() == expected


def test_a_dry_run_changes_nothing_and_says_the_same(table: Table) -> None:
    before = sorted(path for path in table.path.rglob("*") if path.is_file())
    dry = rollback(table.handle(), snapshot_id=2, dry_run=True)
    assert sorted(path for path in table.path.rglob("*") if path.is_file()) == before
    assert rollback(table.handle(), snapshot_id=2).deleted_snapshots == dry.deleted_snapshots == (3, 4, 5)


@pytest.mark.parametrize("form", ["millis", "datetime"])
def test_a_time_means_the_last_snapshot_until_then(table: Table, form: str) -> None:
    for number in (1, 2, 3, 4, 5):
        value = {**table.snapshot(number), "timeMillis": 1_700_000_000_000 + number * 1000}
        table.snapshot_path(number).write_text(json.dumps(value))
    moment = 1_700_000_003_999
    timestamp: Any = moment if form == "millis" else datetime.fromtimestamp(moment / 1000, timezone.utc)
    assert rollback(table.handle(), timestamp=timestamp).target_id == 3
    with pytest.raises(StreamConfigError, match="no snapshot was committed at"):
        rollback(table.handle(), timestamp=1_700_000_000_999)


def test_a_watermark_means_the_last_snapshot_with_it_or_less(table: Table) -> None:
    for number, watermark in zip(table.ids(), (None, 10, None, 20, None), strict=True):
        content = {**table.snapshot(number), "watermark": watermark}
        table.snapshot_path(number).write_text(json.dumps(content))
    for watermark, target in ((9, None), (10, 3), (19, 3), (20, 5), (99, 5)):
        if target is None:
            with pytest.raises(StreamConfigError, match="no snapshot has a watermark of 9 or less"):
                rollback(table.handle(), watermark=watermark, dry_run=True)
            continue
        assert rollback(table.handle(), watermark=watermark, dry_run=True).target_id == target
    assert rollback(table.handle(), watermark=15).deleted_snapshots == (4, 5) and table.ids() == [1, 2, 3]


def test_what_does_not_exist_is_refused(table: Table) -> None:
    table.handle().create_tag("kept", 2)
    for wrong in ({"snapshot_id": 9}, {"tag": "no"}, {}, {"snapshot_id": 1, "tag": "kept"}, {"snapshot_id": 0}):
        with pytest.raises(StreamConfigError):
            rollback(table.handle(), **wrong)  # type: ignore[arg-type]
    with pytest.raises(StreamConfigError, match=r"snapshots 1 to 5; tags: kept"):
        rollback(table.handle(), snapshot_id=9)
    assert table.ids() == [1, 2, 3, 4, 5]


# ---- A tag whose snapshot has expired


@pytest.mark.parametrize("by", ["tag", "snapshot_id"])
def test_an_expired_snapshot_is_restored_from_its_tag(table: Table, by: str) -> None:
    expected = rows_at(table, 2)
    table.handle().create_tag("kept", 2)
    maintain(table.handle(), LATEST_ONLY)
    report = rollback(table.handle(), **({"tag": "kept"} if by == "tag" else {"snapshot_id": 2}))  # type: ignore[arg-type]
    assert report.restored and table.ids() == [2] and table.rows() == expected
    assert (table.path / "snapshot" / "EARLIEST").read_text() == "2"
    # Its changelog files expired with it.
    assert "changelogManifestList" not in table.snapshot(2)
    assert is_whole(table)
    table.commit([9])
    maintain(table.handle(), LATEST_ONLY)
    assert table.ids() == [3] and is_whole(table)


def test_a_changelog_that_is_still_there_is_kept(tmp_path: Path) -> None:
    """Long-lived changelogs outlive the snapshots, so a restored snapshot has its changelog."""
    limits = {"snapshot__num_retained__max": "1", "snapshot__num_retained__min": "1"}
    table = Table(
        tmp_path, "t", primary_key=True, changelog_producer="input", changelog__num_retained__max="9", **limits
    )
    for key in range(4):
        table.commit([key])
    table.handle().create_tag("kept", 2)
    maintain(table.handle())
    assert table.ids() == [4]
    report = rollback(table.handle(), tag="kept")
    assert report.deleted_changelogs == (3,) and "changelogManifestList" in table.snapshot(2)
    assert (table.path / "changelog" / "LATEST").read_text() == "2"
    assert sorted(path.name for path in (table.path / "changelog").glob("changelog-*")) == [
        "changelog-1",
        "changelog-2",
    ]


def test_a_file_is_gone_only_if_a_second_listing_says_so_too(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    original, seen = Store.list_names, set[str]()

    def incomplete(self: Store, directory: str) -> list[str]:
        if directory in seen or not directory.endswith(("manifest", "bucket-0")):
            return original(self, directory)
        seen.add(directory)
        return []

    monkeypatch.setattr(Store, "list_names", incomplete)
    assert rollback(table.handle(), snapshot_id=2).deleted_snapshots == (3, 4, 5) and len(seen) == 2


def test_a_tag_from_before_a_rollback_holds_another_snapshot(table: Table) -> None:
    """Ids are used again, so the snapshot of the id is not that of the tag."""
    expected = table.rows()
    table.handle().create_tag("old", 5)
    kept = (table.path / "tag" / "tag-old").read_bytes()
    rollback(table.handle(), snapshot_id=3)
    (table.path / "tag" / "tag-old").write_bytes(kept)
    for key in (10, 11):
        table.commit([key])
    with pytest.raises(StreamConfigError, match="as_latest"):
        rollback(table.handle(), tag="old")
    rollback(table.handle(), tag="old", as_latest=True)
    assert table.rows() == expected


# ---- As a new snapshot


def test_as_latest_commits_the_state_again(table: Table) -> None:
    expected = rows_at(table, 2)
    report = rollback(table.handle(), snapshot_id=2, as_latest=True)
    made = table.snapshot(6)
    assert table.rows() == expected and table.ids() == [1, 2, 3, 4, 5, 6] and report.latest_id == 6
    assert (made["commitKind"], made["commitIdentifier"]) == ("OVERWRITE", 2**63 - 1)
    assert "changelogManifestList" not in made and made["totalRecordCount"] == 2
    (tag,) = (table.path / "tag").iterdir()
    assert tag.name == f"tag-{report.holding_tag}" and json.loads(tag.read_text())["id"] == 2
    assert table.commit([9]) == 7 and is_whole(table)


def test_streams_pass_over_the_state_that_is_committed_again(table: Table) -> None:
    builder = table.builder().with_start("earliest")
    with builder.new_streaming_scan() as scan:
        assert len(available(scan)) == 5
        rollback(table.handle(), snapshot_id=2, as_latest=True)
        table.commit([9])
        assert [key for plan in available(scan) for _, key, _ in rows(builder.new_read(), plan)] == [9]


def test_files_that_come_back_stay_without_the_tag(table: Table) -> None:
    """Each expired delta deletes files that the new snapshot added again; Java's expiry would delete them."""
    expected = rows_at(table, 2)
    table.commit([7], overwrite=True)
    report = rollback(table.handle(), snapshot_id=2, as_latest=True)
    (table.path / "tag" / f"tag-{report.holding_tag}").unlink()
    for kept in (4, 2, 1):
        maintain(table.handle(), MaintenancePolicy(min_snapshots=1, max_snapshots=kept))
        assert table.rows() == expected and is_whole(table)
    assert files_of(table.path) == needed_files(table.path)


def test_a_tag_that_never_expires_holds_the_state_itself(table: Table) -> None:
    table.handle().create_tag("kept", 2)
    expected = rows_at(table, 2)
    maintain(table.handle(), LATEST_ONLY)
    assert rollback(table.handle(), tag="kept", as_latest=True).holding_tag is None
    assert table.rows() == expected and table.ids() == [5, 6]


def test_as_latest_leaves_no_tag_if_it_fails(table: Table) -> None:
    next(path for path in table.data_files() if path.name.startswith("data-")).unlink()
    before = table.ids()
    with pytest.raises(CorruptTableError, match=r"missing, although snapshot 5 needs it"):
        rollback(table.handle(), snapshot_id=5, as_latest=True)
    assert table.ids() == before and not list((table.path / "tag").glob("*"))


# ---- What can happen meanwhile


def test_a_snapshot_without_all_its_files_is_no_target(table: Table) -> None:
    first = json.loads(table.snapshot_path(1).read_text())["deltaManifestList"]
    (table.path / "manifest" / first).unlink()
    with pytest.raises(CorruptTableError, match=first):
        rollback(table.handle(), snapshot_id=1)
    assert table.ids() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("held_by", ["snapshot", "tag", None])
def test_a_missing_file_is_damage_only_if_its_snapshot_is_still_held(table: Table, held_by: str | None) -> None:
    """Java's expiry looks for no pins, so the target of a rollback may expire at any moment."""
    directory = PaimonTable(table.handle()).new_directory()
    snapshot = directory.snapshots.get(1)
    if held_by == "tag":
        table.handle().create_tag("kept", 1)
    if held_by != "snapshot":
        table.snapshot_path(1).unlink()
    (table.path / "manifest" / snapshot.delta_manifest_list).unlink()
    with pytest.raises(MaintenanceConflictError if held_by is None else CorruptTableError, match="snapshot 1 "):
        check_complete(PaimonTable(table.handle()), directory, snapshot)


def test_a_run_of_maintenance_forbids_a_rollback(table: Table) -> None:
    (table.path / "consumer").mkdir(exist_ok=True)
    (table.path / "consumer" / "maintenance-x").write_text('{"version": 1, "files": []}')
    with pytest.raises(MaintenanceConflictError, match="maintenance-x"):
        rollback(table.handle(), snapshot_id=3)
    assert table.ids() == [1, 2, 3, 4, 5]
    assert [path.name for path in (table.path / "consumer").iterdir()] == ["maintenance-x"]


def test_maintenance_at_any_moment_of_a_rollback_loses_nothing(
    table: Table, tmp_path_factory: pytest.TempPathFactory
) -> None:
    expected = rows_at(table, 2)
    for as_latest in (False, True):
        step, interrupted = 0, True
        while interrupted:
            step += 1 if SOAK else 3
            other = table.copy(tmp_path_factory.mktemp("wh") / "wh")
            file_io = MortalFileIO()
            file_io.interruption = (step, lambda other=other: maintain(other.handle(), LATEST_ONLY))  # type: ignore[misc]
            try:
                rollback(_handle(other, file_io), snapshot_id=2, as_latest=as_latest)
                assert other.rows() == expected, f"step {step}"
            except (MaintenanceConflictError, CorruptTableError, StreamConfigError):
                pass
            interrupted = file_io.interruption is None
            assert is_whole(other), f"step {step}"
            shutil.rmtree(other.path.parents[1])
        assert step > 20


def test_a_rollback_at_any_moment_of_maintenance_loses_nothing(
    table: Table, tmp_path_factory: pytest.TempPathFactory
) -> None:
    step, interrupted = 0, True
    while interrupted:
        step += 1 if SOAK else 7
        other = table.copy(tmp_path_factory.mktemp("wh") / "wh")
        other.handle().create_tag("kept", 2)
        outcome: list[object] = []

        def roll_back(other: Table = other, outcome: list[object] = outcome) -> None:
            try:
                outcome.append(rollback(other.handle(), tag="kept"))
            except (MaintenanceConflictError, CorruptTableError) as error:
                outcome.append(error)

        file_io = MortalFileIO()
        file_io.interruption = (step, roll_back)
        with suppress(MaintenanceConflictError, CorruptTableError):
            maintain(_handle(other, file_io), LATEST_ONLY)
        interrupted = file_io.interruption is None
        assert is_whole(other), f"step {step}: {outcome}"
        shutil.rmtree(other.path.parents[1])
    assert step > 40


def test_a_rollback_that_is_killed_is_finished_by_the_next(
    table: Table, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Killed before each request: there is a whole table, and the same call ends as if nothing was."""
    expected = rows_at(table, 2)
    for name, number in (("kept", 2), ("late", 4)):
        table.handle().create_tag(name, number)
    maintain(table.handle(), MaintenancePolicy(min_snapshots=2, max_snapshots=2))
    assert table.ids() == [4, 5]
    step, died = 0, True
    while died:
        killed = table.copy(tmp_path_factory.mktemp("killed") / "wh")
        try:
            rollback(_handle(killed, MortalFileIO(step)), tag="kept")
            died = False
        except Killed:
            assert is_whole(killed) and set(killed.ids()) <= {2, 4, 5}, f"killed before request {step}"
            assert killed.rows()
        rollback(killed.handle(), tag="kept")
        assert killed.ids() == [2] and killed.rows() == expected, f"killed before request {step}"
        assert [path.name for path in (killed.path / "tag").iterdir()] == ["tag-kept"]
        assert not list((killed.path / "consumer").glob("*"))
        killed.commit([30])
        builder = killed.builder().with_start("earliest")
        with builder.new_streaming_scan() as scan:
            assert [key for plan in available(scan) for _, key, _ in rows(builder.new_read(), plan)] == [30]
        shutil.rmtree(killed.path.parents[1])
        step += 1 if SOAK else 5
    assert step > 20


@pytest.mark.parametrize("hint", [None, "2"])
def test_a_restored_snapshot_is_found_once_the_later_ones_are_gone(
    table: Table, monkeypatch: pytest.MonkeyPatch, hint: str | None
) -> None:
    """After each change, so a crash leaves no gap, and nobody commits after the snapshot while others follow it."""
    table.handle().create_tag("kept", 2)
    maintain(table.handle(), MaintenancePolicy(min_snapshots=2, max_snapshots=2))
    earliest = table.path / "snapshot" / "EARLIEST"
    if hint is None:
        earliest.unlink()
    else:
        # A run that gives up moves it back, although another one may have expired the snapshot meanwhile.
        earliest.write_text(hint)
    found: list[tuple[int, ...]] = []
    at_every_change(monkeypatch, lambda: found.append(table.found_ids()))
    rollback(table.handle(), tag="kept")
    assert [*dict.fromkeys(found)] == [(4, 5), (4,), (2,)]


def test_two_rollbacks_to_one_snapshot_do_not_share_a_pin(table: Table) -> None:
    directory = PaimonTable(table.handle()).new_directory()
    with pinned(directory, 2, "rollback-2") as check:
        with pinned(directory, 2, "rollback-20"), pytest.raises(ZeroDivisionError), pinned(directory, 2, "rollback-2"):
            raise ZeroDivisionError
        check()
        assert rollback(table.handle(), snapshot_id=2).deleted_snapshots == (3, 4, 5)
        # It has taken this pin for that of a call that was killed.
        with pytest.raises(MaintenanceConflictError, match="another call has done the same"):
            check()
    assert not list((table.path / "consumer").glob("*"))


def test_the_first_of_two_rollbacks_that_ends_leaves_the_pin_of_the_other(table: Table) -> None:
    directory = PaimonTable(table.handle()).new_directory()
    with ExitStack() as second:
        with pinned(directory, 2, "rollback-2"):
            check = second.enter_context(pinned(directory, 2, "rollback-2"))
        check()


def test_tags_that_are_created_meanwhile_go_too(table: Table, tmp_path_factory: pytest.TempPathFactory) -> None:
    step, interrupted = 0, True
    while interrupted:
        step += 1
        other = table.copy(tmp_path_factory.mktemp("wh") / "wh")
        file_io = MortalFileIO()

        def create(other: Table = other) -> None:
            with suppress(StreamConfigError):
                create_tag(other.handle(), "late", snapshot=4)

        file_io.interruption = (step, create)
        report = rollback(_handle(other, file_io), snapshot_id=2)
        interrupted = file_io.interruption is None
        assert other.ids() == [1, 2] and not list((other.path / "tag").glob("tag-*")), f"step {step}"
        assert report.deleted_tags in ((), ("late",))
        shutil.rmtree(other.path.parents[1])
    assert step > 20


def test_a_tag_that_java_makes_of_a_commit_after_the_rollback_stays(table: Table) -> None:
    file_io = MortalFileIO()
    deleted: list[str] = []
    delete = file_io.delete

    def tagged(path: str, recursive: bool = False) -> bool:
        done = bool(delete(path, recursive))
        if path.endswith("/snapshot-3") and not deleted:
            deleted.append(path)
            table.commit([9])
            value = {name: given for name, given in table.snapshot(3).items() if name != "uuid"}
            (table.path / "tag").mkdir(exist_ok=True)
            (table.path / "tag" / "tag-by-java").write_text(json.dumps(value))
        return done

    file_io.delete = tagged  # type: ignore[method-assign]
    rollback(_handle(table, file_io), snapshot_id=2)
    assert deleted and table.ids() == [1, 2, 3] and (table.path / "tag" / "tag-by-java").is_file()


def test_a_catalog_that_manages_snapshots_rolls_back_itself(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.handle().create_tag("kept", 2)
    before = {path: path.read_bytes() for path in table.path.rglob("*") if path.is_file()}
    asked: list[Any] = []

    class Catalog:
        def rollback_to(self, instant: Any, from_snapshot: int | None) -> None:
            asked.append((instant.to_dict(), from_snapshot))

    monkeypatch.setattr(CatalogEnvironment, "catalog_table_rollback", lambda _: Catalog())
    assert rollback(table.handle(), snapshot_id=3).deleted_snapshots == (4, 5)
    rollback(table.handle(), tag="kept")
    assert asked == [
        ({"type": "snapshot", "snapshotId": 3}, 5),
        ({"type": "tag", "tagName": "kept"}, 5),
    ]
    assert {path: path.read_bytes() for path in table.path.rglob("*") if path.is_file()} == before


# ---- Readers, consumers and writers


def test_streams_beyond_a_rollback_end_with_an_error(table: Table) -> None:
    builder = table.builder().with_start("earliest")
    with builder.new_streaming_scan() as scan:
        assert len(available(scan)) == 5
        position = scan.checkpoint()
        rollback(table.handle(), snapshot_id=3)
        with pytest.raises(TableChangedError, match="rolled back, or is being dropped"):
            available(table.builder().with_start(position=position).new_streaming_scan())
        for key in (10, 11, 12):
            table.commit([key])
        with pytest.raises(TableChangedError, match="rolled back"):
            available(scan)


def test_a_stream_at_the_new_latest_snapshot_continues(table: Table) -> None:
    builder = table.builder().with_start("earliest").with_end(snapshot_id=3)
    with builder.new_streaming_scan() as scan:
        available(scan)
        position = scan.checkpoint()
    rollback(table.handle(), snapshot_id=3)
    table.commit([10])
    other = table.builder().with_start(position=position)
    with other.new_streaming_scan() as scan:
        (plan,) = available(scan)
        assert [key for _, key, _ in rows(other.new_read(), plan)] == [10]


def test_overtaken_progress_is_reported_and_stays(table: Table) -> None:
    manager = consumers(table)
    manager.reset_consumer("reached", Consumer(4))
    manager.reset_consumer("beyond", Consumer(5))
    manager.write(ConsumerName("shared", group=True), Consumer(6))
    manager.write(ConsumerName("reads", is_pin=True), Consumer(5))
    with table.writer("etl").open_sync() as writer:
        writer.write(table.arrow_rows([20]))
        writer.commit()
    before = {path.name: path.read_bytes() for path in (table.path / "consumer").iterdir()}
    report = rollback(table.handle(), snapshot_id=3)
    assert {(each.kind, each.name) for each in report.overtaken} == {
        ("consumer", "beyond"),
        ("first plan", "reads.first-plan"),
        ("group", "shared.group"),
        ("writer", "etl"),
    }
    assert {path.name: path.read_bytes() for path in (table.path / "consumer").iterdir()} == before


def _handle(table: Table, file_io: Any) -> Any:
    handle = table.handle()
    handle.file_io = file_io
    return handle
