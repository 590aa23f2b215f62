"""Snapshots of every release, long-lived changelogs, hints that lie, gaps, damage, catalogs: and what each costs."""

from __future__ import annotations

import gc
import json
import pickle
import shutil
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pypaimon import Schema
from pypaimon.catalog.catalog_exception import TableNoPermissionException, TableNotExistException
from pypaimon.common.identifier import Identifier
from pypaimon.common.json_util import JSON
from pypaimon.filesystem.local_file_io import LocalFileIO
from pypaimon.snapshot.snapshot import Snapshot as PaimonSnapshot
from pypaimon.snapshot.snapshot_loader import SnapshotLoader

from pypaimon.streaming.errors import CorruptTableError, StoreError, TableChangedError
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.metadata.snapshots import Snapshot, SnapshotManager, branch_directory
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.corpus.cases import ARCHIVES, load, scenario_names, unpack
from support.samples import examples, some
from support.stores.fault_file_io import Call, FaultFileIO

pytestmark = [pytest.mark.slow, pytest.mark.soak]

REQUIRED = (
    "id",
    "schemaId",
    "baseManifestList",
    "deltaManifestList",
    "commitUser",
    "commitIdentifier",
    "commitKind",
    "timeMillis",
)


def document(snapshot_id: int, **fields: Any) -> dict[str, Any]:
    return {
        "version": 3,
        "id": snapshot_id,
        "schemaId": 0,
        "baseManifestList": f"base-{snapshot_id}",
        "deltaManifestList": f"delta-{snapshot_id}",
        "commitUser": "me",
        "commitIdentifier": snapshot_id,
        "commitKind": "APPEND",
        "timeMillis": 1000 * snapshot_id,
        "totalRecordCount": 1,
        "deltaRecordCount": 1,
        **fields,
    }


class Table:
    """A directory of snapshots that a test writes; hints are written only where it asks for them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.io = FaultFileIO()
        self.store = Store(self.io, sleep=lambda _: None)

    def manager(self, **settings: Any) -> SnapshotManager:
        return SnapshotManager(self.store, str(self.path), **settings)

    def put(self, *ids: int, directory: str = "snapshot", **fields: Any) -> None:
        for snapshot_id in ids:
            self.file(snapshot_id, directory).write_text(json.dumps(document(snapshot_id, **fields)))

    def drop(self, *ids: int, directory: str = "snapshot") -> None:
        for snapshot_id in ids:
            self.file(snapshot_id, directory).unlink()

    def file(self, snapshot_id: int, directory: str = "snapshot") -> Path:
        (self.path / directory).mkdir(exist_ok=True)
        return self.path / directory / f"{directory}-{snapshot_id}"

    def asked(self) -> list[str]:
        """What was asked for since the last call, sorted."""
        found = sorted(Path(path).name + "/" * (kind == "list") for kind, path in self.io.calls)
        self.io.forget()
        return found

    def hint(self, name: str, text: int | str, directory: str = "snapshot") -> None:
        (self.path / directory).mkdir(exist_ok=True)
        (self.path / directory / name).write_text(str(text))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


# One snapshot.


@pytest.mark.parametrize("archive", some("archives of snapshots", ARCHIVES, 2))
def test_every_release_s_snapshots_are_read_as_java_reads_them(archive: str) -> None:
    for name in scenario_names(archive):
        root = unpack(archive) / name
        expected = json.loads((root / "expect.json").read_text())
        manager = SnapshotManager(Store(LocalFileIO(), sleep=lambda _: None), str(root / "wh/d.db/t"))
        for key, get in (("snapshots", manager.try_get), ("long_lived_changelogs", manager.try_get_changelog)):
            for java in expected.get(key, []):
                ours = get(java["id"])
                assert ours is not None
                assert ours.is_changelog == (key != "snapshots")
                assert java == {
                    "id": ours.id,
                    "commit_kind": ours.commit_kind,
                    "time_millis": ours.time_millis,
                    "watermark": ours.watermark,
                    "has_changelog": ours.changelog_manifest_list is not None,
                    "schema_id": ours.schema_id,
                    "commit_identifier": ours.commit_identifier,
                }


def test_what_older_releases_do_not_write_is_none() -> None:
    old = {key: value for key, value in document(4).items() if key in REQUIRED}
    snapshot = Snapshot.from_json(json.dumps(old))
    optional = set(asdict(snapshot)) - {
        "id",
        "schema_id",
        "base_manifest_list",
        "delta_manifest_list",
        "commit_user",
        "commit_identifier",
        "commit_kind",
        "time_millis",
        "is_changelog",
        "properties",
    }
    assert {getattr(snapshot, name) for name in optional} == {None}
    assert snapshot.properties == {}
    nulls = {**old, "changelogManifestList": None, "watermark": None, "uuid": None, "logOffsets": {}, "unknown": [1]}
    assert Snapshot.from_json(json.dumps(nulls)) == snapshot


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.parametrize("value", [None, [], True])
def test_what_every_release_writes_must_be_there(table: Table, name: str, value: object) -> None:
    table.put(1, **{name: value})
    with pytest.raises(CorruptTableError, match=name) as raised:
        table.manager().try_get(1)
    assert raised.value.path == str(table.file(1))


@pytest.mark.parametrize("name", ["changelogManifestList", "indexManifest", "uuid", "watermark", "totalRecordCount"])
def test_a_field_of_another_type_is_damage(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Snapshot.from_json(json.dumps(document(1, **{name: ["x"]})))


@settings(max_examples=examples(160))
@given(st.binary(max_size=40) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_whatever_else_is_in_the_file_is_a_value_error(data: bytes | str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - what is wrong differs
        Snapshot.from_json(data)


def test_the_smallest_watermark_means_that_none_has_come() -> None:
    assert Snapshot.from_json(json.dumps(document(1, watermark=-(2**63)))).watermark is None
    assert Snapshot.from_json(json.dumps(document(1, watermark=-5))).watermark == -5


@pytest.mark.parametrize(
    ("snapshot_id", "counts", "lists"),
    [
        (1, {}, ("delta-1",)),
        (1, {"totalRecordCount": 2}, ("base-1", "delta-1")),
        (1, {"totalRecordCount": None, "deltaRecordCount": None}, ("base-1", "delta-1")),
        (2, {}, ("base-2", "delta-2")),
    ],
)
def test_only_the_first_snapshot_has_no_base(snapshot_id: int, counts: dict[str, Any], lists: tuple[str, ...]) -> None:
    assert Snapshot.from_json(json.dumps(document(snapshot_id, **counts))).state_lists == lists


def test_a_fingerprint_distinguishes_snapshots_of_one_id() -> None:
    def fingerprint(**fields: Any) -> str:
        return Snapshot.from_json(json.dumps(document(1, **fields))).fingerprint

    different = {
        fingerprint(),
        fingerprint(uuid="u"),
        fingerprint(commitUser="you"),
        fingerprint(timeMillis=7),
        fingerprint(commitIdentifier=9),
    }
    assert len(different) == 5


# Missing, damaged, refused.


def test_missing_is_none_and_one_request(table: Table) -> None:
    assert table.manager().try_get(1) is None
    assert table.asked() == ["snapshot-1"]


def test_a_snapshot_is_asked_for_once(table: Table) -> None:
    table.put(1)
    manager = table.manager()
    assert manager.try_get(1) is manager.get_snapshot_by_id(1) is manager.get(1)
    assert table.asked() == ["snapshot-1"]
    manager.forget()
    assert manager.try_get(1) == manager.get(1)
    assert table.asked() == ["snapshot-1"]


def test_another_snapshot_of_the_same_id_is_seen_past_the_cache(table: Table) -> None:
    table.put(1, uuid="old")
    manager = table.manager()
    assert manager.get(1).uuid == "old"
    table.put(1, uuid="new")
    assert manager.get(1).uuid == "old"
    refreshed = manager.refreshed(1)
    assert refreshed is not None and refreshed.uuid == manager.get(1).uuid == "new"
    table.drop(1)
    assert manager.refreshed(1) is manager.try_get(1) is None


@pytest.mark.parametrize("read", [SnapshotManager.try_get, SnapshotManager.refreshed])
def test_a_read_that_began_before_all_was_forgotten_is_not_cached(
    table: Table, read: Callable[[SnapshotManager, int], Snapshot | None]
) -> None:
    table.put(1, uuid="old")
    io = FaultFileIO()
    manager = SnapshotManager(Store(io), str(table.path))

    def rolled_back_meanwhile(call: Call) -> Any:
        data = call.answer()
        table.put(1, uuid="new")
        manager.forget()
        return data

    io.at(1, rolled_back_meanwhile)
    assert read(manager, 1).uuid == "old"
    assert manager.get(1).uuid == "new"


def test_a_damaged_snapshot_is_never_missing(table: Table) -> None:
    table.put(1, 2, 3)
    table.file(2).write_text('{"id": 2,')
    manager = table.manager()
    for ask in (
        manager.try_get,
        lambda number: manager.get_snapshots_batch([1, number]),
        lambda _: manager.list_snapshots(),
    ):
        with pytest.raises(CorruptTableError) as raised:
            ask(2)
        assert raised.value.path == str(table.file(2))
    assert manager.get(3).id == 3


def test_a_snapshot_that_must_be_there_is_an_error_where_it_is_not(table: Table) -> None:
    with pytest.raises(CorruptTableError, match="snapshot-7"):
        table.manager().get(7)


# Ranges.


def test_an_empty_table_has_no_snapshots(table: Table) -> None:
    manager = table.manager()
    ids = (manager.earliest_id(), manager.latest_id(), manager.earliest_changelog_id())
    assert ids == (None,) * 3
    assert manager.get_latest_snapshot() is manager.try_get_earliest_snapshot() is None
    assert manager.earlier_than_time_millis(10**15) is None
    assert manager.list_ids() == manager.list_snapshots() == []


def test_right_hints_save_the_listing(table: Table) -> None:
    table.put(4, 5, 6)
    table.hint("EARLIEST", 4)
    table.hint("LATEST", 6)
    manager = table.manager()
    assert (manager.earliest_id(), manager.latest_id()) == (4, 6)
    assert table.asked() == ["EARLIEST", "LATEST", "snapshot-3", "snapshot-4", "snapshot-6", "snapshot-7"]


@pytest.mark.parametrize("earliest", [None, 2, 5, 7, 99, "", "x", "-1", " 3 "])
@pytest.mark.parametrize("latest", [None, 2, 3, 4, 6, 99, "", "x"])
def test_wrong_hints_are_not_believed(table: Table, earliest: int | str | None, latest: int | str | None) -> None:
    table.put(3, 4, 5)
    for name, hint in (("EARLIEST", earliest), ("LATEST", latest)):
        if hint is not None:
            table.hint(name, hint)
    manager = table.manager()
    assert (manager.earliest_id(), manager.latest_id()) == (3, 5)


def test_hints_are_held_against_the_store_and_not_against_what_is_cached(table: Table) -> None:
    table.put(1, 2, 3, 4, 5)
    manager = table.manager()
    assert [snapshot.id for snapshot in manager.list_snapshots()] == [1, 2, 3, 4, 5]
    table.drop(1, 2)
    table.hint("EARLIEST", 2)
    assert manager.earliest_id() == 3
    table.drop(5)
    table.put(4, uuid="new")
    table.hint("LATEST", 5)
    latest = manager.get_latest_snapshot()
    assert latest is not None and (latest.id, latest.uuid) == (4, "new")


@pytest.mark.parametrize("archive", some("archives of ranges", ARCHIVES, 1))
def test_the_range_is_that_of_the_files_in_every_scenario(archive: str) -> None:
    for name in scenario_names(archive):
        scenario = load(archive, name)
        path = scenario.warehouse / "d.db/t"
        manager = SnapshotManager(LocalFileIO(), str(path))
        ids = sorted(int(file.name.split("-")[1]) for file in path.glob("snapshot/snapshot-*"))
        assert manager.list_ids() == ids
        assert (manager.earliest_id(), manager.latest_id()) == ((ids[0], ids[-1]) if ids else (None, None))
        changelogs = sorted(int(file.name.split("-")[1]) for file in path.glob("changelog/changelog-*"))
        assert manager.list_changelog_ids() == changelogs
        assert manager.earliest_changelog_id() == (changelogs[0] if changelogs else None)


def test_a_branch_has_snapshots_of_its_own() -> None:
    path = unpack("java-2.1") / "branches/wh/d.db/t"
    assert SnapshotManager(LocalFileIO(), str(path), "b1").list_ids() == [2, 3, 4]
    assert branch_directory("t/", "b1") == "t/branch/branch-b1"
    assert {branch_directory("t", name) for name in (None, "", "main")} == {"t"}


# Looking ahead.


def test_an_idle_poll_is_one_request(table: Table) -> None:
    table.put(1, 2, 3)
    assert table.manager().find_next_scannable(4, lambda _: True) == (None, 4, 0)
    assert table.asked() == ["snapshot-4"]


def test_windows_grow_while_snapshots_keep_coming_and_nothing_is_fetched_twice(table: Table) -> None:
    table.put(*range(1, 41))
    manager = table.manager()
    assert manager.find_next_scannable(1, lambda _: False, 16) == (None, 41, 40)
    asked = table.asked()
    assert len(asked) == len(set(asked)) == 1 + 2 + 4 + 8 + 16 + 16
    table.put(41)
    found, next_id, passed = manager.find_next_scannable(41, lambda snapshot: snapshot.id == 41)
    assert (found, next_id, passed) == (manager.get(41), 42, 0)
    assert table.asked() == ["snapshot-41"]


def test_damage_is_an_error_only_after_what_comes_before_it(table: Table) -> None:
    table.put(*range(1, 9))
    table.file(6).write_text("{")
    manager = table.manager()
    found, next_id, passed = manager.find_next_scannable(1, lambda snapshot: snapshot.id == 5)
    assert (found, next_id, passed) == (manager.get(5), 6, 4)
    with pytest.raises(CorruptTableError, match="snapshot-6"):
        manager.find_next_scannable(6, lambda _: True)
    assert [snapshot.id for snapshot in table.manager().prefetch(range(1, 9))] == [1, 2, 3, 4, 5]
    assert table.manager().prefetch(range(6, 9)) == []


def test_looking_ahead_ends_at_the_first_that_is_missing(table: Table) -> None:
    table.put(1, 2, 4)
    manager = table.manager()
    assert [snapshot.id for snapshot in manager.prefetch(range(1, 9))] == [1, 2]
    assert manager.find_next_scannable(1, lambda _: False) == (None, 3, 2)
    assert manager.get_snapshots_batch([1, 3, 4]) == {1: manager.get(1), 3: None, 4: manager.get(4)}


# Times.


@given(
    times=st.lists(st.integers(0, 9), min_size=1, max_size=14).map(sorted),
    first=st.integers(1, 5),
    changelogs=st.integers(0, 6),
    lost=st.sets(st.integers(1, 20), max_size=4),
    millis=st.integers(-1, 11),
)
def test_a_time_is_searched_as_if_all_were_read(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], first: int, changelogs: int, lost: set[int], millis: int
) -> None:
    table = Table(tmp_path_factory.mktemp("times"))
    try:
        present: dict[int, tuple[int, bool]] = {}
        for offset, time in enumerate(times):
            number, expired = first + offset, offset < changelogs
            if number in lost and offset not in (0, len(times) - 1):
                continue
            table.put(number, directory="changelog" if expired else "snapshot", timeMillis=time)
            present[number] = time, expired
        for with_changelogs in (False, True):
            seen = [
                number for number, (time, expired) in present.items() if time < millis and expired <= with_changelogs
            ]
            # What has no snapshot at all is no table that is being followed.
            if not all(expired for _, expired in present.values()):
                found = table.manager().earlier_than_time_millis(millis, with_changelogs=with_changelogs)
                assert (found and found.id) == (max(seen) if seen else None)
    finally:
        shutil.rmtree(table.path)


def test_a_gap_of_any_width_is_searched_at_once(table: Table) -> None:
    table.put(1, timeMillis=1000)
    table.put(10**15, timeMillis=3000)
    manager = table.manager()
    found = [manager.earlier_than_time_millis(millis) for millis in (1000, 2000, 3000, 4000)]
    assert [snapshot and snapshot.id for snapshot in found] == [None, 1, 1, 10**15]


def test_snapshots_that_expire_during_the_search_do_not_mislead_it(table: Table) -> None:
    table.put(*range(1, 17))

    def expire(call: Call) -> Any:
        if call.name == "snapshot-8":
            table.drop(*(number for number in range(1, 11) if table.file(number).exists()))
        return call.answer()

    table.io.wherever(expire)
    manager = SnapshotManager(table.io, str(table.path))
    found = manager.earlier_than_time_millis(12_500)
    assert found is not None and found.id == 12
    assert manager.earlier_than_time_millis(3_500) is None


def test_a_time_at_a_commit_counts_or_does_not(table: Table) -> None:
    table.put(1, 2, 3)
    manager = table.manager()
    before, at = manager.earlier_than_time_millis(2000), manager.earlier_or_equal_time_mills(2000)
    assert (before and before.id, at and at.id) == (1, 2)


# Catalogs that know the latest snapshot.


class Catalog:
    """A catalog as pypaimon's `SnapshotLoader` uses it: what it answers is next in `answers`."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def load(self) -> Catalog:
        return self

    def load_snapshot(self, identifier: Identifier) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def loader(self) -> SnapshotLoader:
        return SnapshotLoader(self, Identifier.create("d", "t"))


def test_the_catalog_s_latest_snapshot_is_taken_without_asking_the_store(table: Table) -> None:
    theirs = JSON.from_json(json.dumps(document(7, watermark=3)), PaimonSnapshot)
    manager = table.manager(snapshot_loader=Catalog(SimpleNamespace(snapshot=theirs), None).loader())
    latest = manager.get_latest_snapshot()
    assert latest == Snapshot.from_json(json.dumps(document(7, watermark=3)))
    assert manager.get(7) == latest
    assert manager.latest_id() is None
    assert table.asked() == []


def test_a_catalog_that_does_not_know_leaves_it_to_the_store(table: Table) -> None:
    table.put(1, 2)
    manager = table.manager(snapshot_loader=Catalog(NotImplementedError()).loader())
    assert manager.latest_id() == 2
    assert manager.latest_id() == 2


def test_threads_that_find_out_together_that_a_catalog_does_not_know_all_ask_the_store(
    table: Table, request: pytest.FixtureRequest
) -> None:
    table.put(1, 2)
    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-6)
    with ThreadPoolExecutor(3) as threads:
        for _ in range(200):
            manager = table.manager(snapshot_loader=Catalog(*[NotImplementedError()] * 3).loader())
            found = [threads.submit(manager.latest_id) for _ in range(3)]
            assert [each.result() for each in found] == [2, 2, 2]


def test_a_catalog_that_fails_is_asked_again(table: Table) -> None:
    theirs = JSON.from_json(json.dumps(document(2)), PaimonSnapshot)
    failing = Catalog(ConnectionResetError(), ValueError("503"), SimpleNamespace(snapshot=theirs)).loader()
    assert table.manager(snapshot_loader=failing).latest_id() == 2
    with pytest.raises(StoreError, match="503"):
        table.manager(snapshot_loader=Catalog(*[ValueError("503")] * 5).loader()).latest_id()


def test_a_catalog_that_lost_the_table_or_refuses_it_says_so(table: Table) -> None:
    identifier = Identifier.create("d", "t")
    with pytest.raises(TableChangedError, match="dropped"):
        table.manager(snapshot_loader=Catalog(TableNotExistException(identifier)).loader()).latest_id()
    with pytest.raises(CorruptTableError, match="permission"):
        table.manager(snapshot_loader=Catalog(TableNoPermissionException(identifier)).loader()).latest_id()


# The directory of a table.


@pytest.fixture
def paimon_table(warehouse: Any) -> Any:
    schema = Schema.from_pyarrow_schema(pa.schema([("id", pa.int32()), ("v", pa.string())]))
    warehouse.create_table("db.t", schema, False)
    return warehouse.get_table("db.t")


def test_directories_of_a_handle_share_counts_and_manifests_and_nothing_that_changes(
    paimon_table: Any, warehouse: Any
) -> None:
    found: list[TableDirectory] = []
    threads = [threading.Thread(target=lambda: found.append(TableDirectory.of(paimon_table))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(each.store._common) for each in found}) == len({id(each.manifests._cache) for each in found}) == 1
    assert len({id(each.store.pool) for each in found}) == len({id(each.snapshots) for each in found}) == 8
    store = found[0].store
    assert TableDirectory.of(paimon_table, 5.0).store._common is not store._common
    assert TableDirectory.of(warehouse.get_table("db.t")).store._common is not store._common
    assert TableDirectory.of(paimon_table.copy({"scan.mode": "latest"})).store._common is not store._common


def test_a_table_handle_can_still_be_pickled_and_is_not_kept_alive(paimon_table: Any, warehouse: Any) -> None:
    directory = TableDirectory.of(paimon_table)
    again = pickle.loads(pickle.dumps(paimon_table))
    assert TableDirectory.of(again).store._common is not directory.store._common
    handle = warehouse.get_table("db.t")
    kept = weakref.ref(TableDirectory.of(handle).store._common)
    del handle
    gc.collect()
    assert kept() is None


def test_the_identity_is_the_creation_time_until_the_table_is_recreated(paimon_table: Any) -> None:
    directory = TableDirectory.of(paimon_table)
    path = Path(LocalFileIO()._to_file(paimon_table.table_path)) / "schema/schema-0"
    first = json.loads(path.read_text())
    assert directory.identity == str(first["timeMillis"]) == directory.current_identity()
    path.write_text(json.dumps({**first, "timeMillis": 7}))
    assert (directory.identity, directory.current_identity()) == (str(first["timeMillis"]), "7")
    path.unlink()
    with pytest.raises(FileNotFoundError):
        directory.current_identity()
    assert not directory.exists()
