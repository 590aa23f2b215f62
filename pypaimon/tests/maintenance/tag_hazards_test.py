"""Tags while snapshots and tags expire, and operations that are killed: nothing that is needed goes."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import (
    StreamConfigError,
    maintain,
)
from pypaimon.streaming.errors import MaintenanceConflictError
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.maintenance import create_tag, delete_tag, rename_tag, replace_tag
from pypaimon.streaming.maintenance.tag_writer import TagWriter
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.crash.crashing_file_io import Killed, MortalFileIO
from support.samples import SOAK, every
from support.stores.fault_file_io import DyingStore
from support.tables.named_files import files_of, needed_files
from support.tables.streamed_table import Table
from support.tables.tagged_tables import (
    LATEST_ONLY,
    filled,
    handle_of,
    is_exact,
    keys_of,
    steps_of,
    tags,
)

OPERATIONS: dict[str, Callable[[Any], object]] = {
    "delete": lambda handle: delete_tag(handle, "two"),
    "replace": lambda handle: replace_tag(handle, "two", snapshot=3),
    "rename": lambda handle: rename_tag(handle, "two", "new"),
    "create": lambda handle: create_tag(handle, "new", snapshot=2),
}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A keyed table with an overwrite: six snapshots, of which the fifth has removed the rows of the others."""
    return filled(Table(tmp_path, "t", primary_key=True))


def test_a_tag_of_a_snapshot_that_expires_meanwhile(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files have gone: there is no tag then."""
    original = Store.replace

    def replace(self: Any, path: str, data: bytes, seen: Any) -> None:
        maintain(table.handle(), LATEST_ONLY)
        original(self, path, data, seen)

    monkeypatch.setattr(Store, "replace", replace)
    with pytest.raises(MaintenanceConflictError, match=r"snapshot 2 has expired meanwhile: .* is gone"):
        create_tag(table.handle(), "kept", snapshot=2)
    assert tags(table) == {} and is_exact(table)


def test_a_tag_that_came_in_time_stays_although_its_snapshot_is_gone(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = TagWriter._is_there

    def is_there(self: Any, snapshot: Any) -> bool:
        maintain(table.handle(), LATEST_ONLY)
        return original(self, snapshot)

    monkeypatch.setattr(TagWriter, "_is_there", is_there)
    create_tag(table.handle(), "kept", snapshot=2)
    assert table.ids() == [6] and keys_of(table, "kept") == [0, 1] and is_exact(table)


def test_a_replaced_tag_of_an_expired_snapshot_is_as_before(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    create_tag(table.handle(), "kept", snapshot=2)
    original = TagWriter._is_there

    def is_there(self: Any, snapshot: Any) -> bool:
        table.snapshot_path(3).unlink(missing_ok=True)
        (table.path / "manifest" / snapshot.delta_manifest_list).unlink(missing_ok=True)
        return original(self, snapshot)

    monkeypatch.setattr(TagWriter, "_is_there", is_there)
    with pytest.raises((MaintenanceConflictError, StreamConfigError)):
        replace_tag(table.handle(), "kept", snapshot=3)
    assert tags(table) == {"kept": 2}


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("what", OPERATIONS)
def test_an_operation_that_is_killed(table: Table, tmp_path_factory: pytest.TempPathFactory, what: str) -> None:
    """Killed before each request: nothing that is needed goes, and the next run of `maintain` leaves no more."""
    for number in (1, 2, 3):
        create_tag(table.handle(), ("one", "two", "three")[number - 1], snapshot=number)
    maintain(table.handle(), LATEST_ONLY)
    operation = OPERATIONS[what]
    steps = steps_of(operation, table, tmp_path_factory.mktemp("count") / "wh")
    for step in every(5, range(steps)):
        killed = table.copy(tmp_path_factory.mktemp("killed") / "wh")
        with pytest.raises(Killed):
            operation(handle_of(killed, MortalFileIO(step)))
        assert needed_files(killed.path) <= files_of(killed.path), f"killed before request {step}"
        # A young plan may be that of a run that is still under way, and stays.
        for plan in (killed.path / "consumer").glob("maintenance-*"):
            os.utime(plan, (time.time() - 3600,) * 2)
        maintain(killed.handle(), LATEST_ONLY)
        assert is_exact(killed), f"killed before request {step}"
        assert not list((killed.path / "consumer").glob("maintenance-*")) and len(tags(killed)) >= 2
        shutil.rmtree(killed.path.parents[1])


@pytest.mark.slow
@pytest.mark.parametrize("what", ["delete", "replace"])
def test_a_store_that_dies_loses_nothing(table: Table, tmp_path_factory: pytest.TempPathFactory, what: str) -> None:
    """As above, in an object store, where a request may also have taken effect although it failed."""
    for name, number in (("one", 1), ("two", 2), ("three", 3)):
        create_tag(table.handle(), name, snapshot=number)
    maintain(table.handle(), LATEST_ONLY)
    step, died = 0, True
    while died:
        killed = table.copy(tmp_path_factory.mktemp("killed") / "wh")
        store = DyingStore()
        store.dies_after(step)
        handle = killed.handle(store)
        TableDirectory.of(handle).store._common.sleep = lambda _: None
        try:
            OPERATIONS[what](handle)
        except OSError:
            assert store.dead
        died = store.dead
        assert needed_files(killed.path) <= files_of(killed.path), f"died after step {step}"
        maintain(killed.handle(), LATEST_ONLY)
        assert is_exact(killed), f"died after step {step}"
        shutil.rmtree(killed.path.parents[1])
        step += 1 if SOAK else 16
    assert step > 60


@pytest.mark.parametrize("what", ["create", "rename"])
def test_a_tag_whose_files_are_about_to_go(table: Table, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Another run has looked for tags for the last time, and has not deleted the files yet."""
    create_tag(table.handle(), "old", snapshot=2)
    maintain(table.handle(), LATEST_ONLY)
    copied = json.loads((table.path / "tag" / "tag-old").read_text())
    plan = table.path / "consumer" / "maintenance-running"
    original = Store.replace

    def replace(self: Any, path: str, data: bytes, seen: Any) -> None:
        (table.path / "tag" / "tag-old").unlink()
        plan.write_text(json.dumps({"version": 1, "files": [f"manifest/{copied['baseManifestList']}"]}))
        original(self, path, data, seen)

    monkeypatch.setattr(Store, "replace", replace)
    with pytest.raises(MaintenanceConflictError, match="about to go"):
        if what == "create":
            create_tag(table.handle(), "new", snapshot=2)
        else:
            rename_tag(table.handle(), "old", "new")
    assert tags(table) == {}


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("what", ["create", "rename", "replace"])
def test_expiry_at_any_moment_of_an_operation(
    table: Table, tmp_path_factory: pytest.TempPathFactory, what: str
) -> None:
    """Snapshots expire, and the tag with them."""
    create_tag(table.handle(), "two", snapshot=2)
    path = table.path / "tag" / "tag-two"
    expired = {"tagCreateTime": [2026, 1, 1, 0, 0], "tagTimeRetained": 1.0}
    path.write_text(json.dumps({**json.loads(path.read_text()), **expired}))
    steps = steps_of(OPERATIONS[what], table, tmp_path_factory.mktemp("count") / "wh")
    for step in every(3, range(1, steps + 1)):
        raced = table.copy(tmp_path_factory.mktemp("raced") / "wh")
        file_io = MortalFileIO()
        file_io.interruption = (step, lambda raced=raced: maintain(raced.handle(), LATEST_ONLY))
        with suppress(MaintenanceConflictError, StreamConfigError):
            OPERATIONS[what](handle_of(raced, file_io))
        assert needed_files(raced.path) <= files_of(raced.path), f"before request {step}"
        shutil.rmtree(raced.path.parents[1])


@pytest.mark.soak
@pytest.mark.slow
def test_maintenance_at_any_moment_of_a_deletion(table: Table, tmp_path_factory: pytest.TempPathFactory) -> None:
    """And a tag of the same snapshot, which keeps the files if it comes in time."""
    create_tag(table.handle(), "two", snapshot=2)
    steps = steps_of(OPERATIONS["delete"], table, tmp_path_factory.mktemp("count") / "wh")

    def expire(raced: Table) -> None:
        maintain(raced.handle(), LATEST_ONLY)

    def tag(raced: Table) -> None:
        try:
            create_tag(raced.handle(), "late", snapshot=2)
        except (StreamConfigError, MaintenanceConflictError):
            assert "late" not in tags(raced)

    for action in (expire, tag):
        for step in every(7, range(1, steps + 1)):
            raced = table.copy(tmp_path_factory.mktemp("raced") / "wh")
            if action is tag:
                maintain(raced.handle(), LATEST_ONLY)
            file_io = MortalFileIO()
            file_io.interruption = (step, lambda raced=raced, action=action: action(raced))
            delete_tag(handle_of(raced, file_io), "two")
            assert "two" not in tags(raced)
            assert needed_files(raced.path) <= files_of(raced.path), f"{action} before request {step}"
            shutil.rmtree(raced.path.parents[1])
