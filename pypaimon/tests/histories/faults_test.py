"""Something goes wrong at the n-th request of a scenario, for every n: rows stay exact, errors typed."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import CorruptTableError, EndOfScan, IOTimeoutError, PaimonStreamError, StreamReadBuilder
from pypaimon.streaming.errors import StoreError
from support.samples import SOAK, every, is_drawn
from support.stores.fault_file_io import (
    FORBIDDEN,
    MISSING,
    RESET,
    UNAVAILABLE,
    Call,
    Fault,
    FaultFileIO,
    failing,
    late,
    truncated,
)
from support.stores.request_time import hang
from support.tables.streamed_table import Row, Table, available, keys, rows, snapshots

pytestmark = [pytest.mark.slow, pytest.mark.soak]

FIRST, LAST = 2, 5
released = threading.Event()


def hanging(call: Call) -> Any:
    """No answer before the end of the test."""
    hang(released)
    raise RESET


def delayed(call: Call) -> Any:
    """The answer comes, but not soon: others that were asked for later come first."""
    time.sleep(0.02)
    return call.answer()


def stale(call: Call) -> Any:
    """Hints of long ago, listings without the newest, new snapshots not visible yet."""
    if call.name in ("LATEST", "EARLIEST"):
        return b"1"
    found = call.answer()
    if call.kind == "list":
        return sorted(found, key=lambda status: str(status.path))[:-1] or found
    return found


def missing(call: Call) -> Any:
    """A snapshot is not visible yet."""
    if call.name.startswith("snapshot-"):
        raise MISSING
    return call.answer()


FAULTS: dict[str, Fault] = {
    "reset": failing(RESET),
    "503": failing(UNAVAILABLE),
    "403": failing(FORBIDDEN),
    "404": missing,
    "answer lost": late,
    "truncated": truncated,
    "stale": stale,
    "delayed": delayed,
    "hanging": hanging,
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Table]]:
    released.clear()
    append = Table(tmp_path_factory.mktemp("append") / "w", bucket="2", bucket_key="k")
    primary = Table(tmp_path_factory.mktemp("input") / "w", primary_key=True, changelog_producer="input")
    for number in range(1, LAST + 1):
        append.commit(range(number * 10, number * 10 + 4))
        primary.commit([("+U", key, f"v{number}") for key in range(number, number + 4)])
    yield {"append": append, "input": primary}
    released.set()


class Follower:
    """Follows a table to its end through errors.

    Attributes:
        consumer: Whether progress is saved under a consumer id.
        lives: The same with their snapshots, from one restart to the next.
        saved: The next snapshot that was saved at the end of each life, None if none was.
    """

    def __init__(self, table: Table, file_io: FaultFileIO, consumer: bool) -> None:
        self.table = table
        self.file_io = file_io
        self.consumer = consumer
        self.found: list[Row] = []
        self.lives: list[list[tuple[int, Row]]] = [[]]
        self.saved: list[int | None] = []
        self.errors: list[PaimonStreamError] = []

    def builder(self, start: Any = None) -> StreamReadBuilder:
        builder = self.table.builder(self.file_io).with_prefetch(0)
        builder.with_limits(max_splits=1).with_end(snapshot_id=LAST).with_catch_up("replay")
        if self.consumer:
            builder.with_consumer_id("c")
        return builder.with_start(position=start) if start else builder.with_start(snapshot_id=FIRST, full=True)

    def go(self, restart: bool) -> None:
        """To the end; after each error anew from where the error came, or with the same scan."""
        scan, read, start = None, None, None
        while True:
            assert len(self.errors) < 6, self.errors
            try:
                if scan is None or read is None:
                    builder = self.builder(start)
                    scan, read = builder.new_streaming_scan(), builder.new_read()
                plan = scan.plan()
                while plan is not None:
                    try:
                        got = rows(read, plan)
                        self.found += got
                        self.lives[-1] += [(plan.snapshot_id, row) for row in got]
                        break
                    except PaimonStreamError as error:
                        self.errors.append(error)
            except EndOfScan:
                break
            except PaimonStreamError as error:
                self.errors.append(error)
                if restart and scan is not None:
                    start = None if self.consumer else scan.checkpoint()
                    scan.close()
                    scan = None
                    self.saved.append(self._saved())
                    self.lives.append([])
        assert scan is not None
        scan.close()
        self.saved.append(self._saved())

    def _saved(self) -> int | None:
        path = self.table.path / "consumer" / "consumer-c"
        return int(json.loads(path.read_text())["nextSnapshot"]) if path.exists() else None


def follow(table: Table, fault: Fault | None, number: int, consumer: bool, restart: bool) -> Follower:
    shutil.rmtree(table.path / "consumer", ignore_errors=True)
    file_io = FaultFileIO()
    if fault is not None:
        file_io.at(number, fault)
    follower = Follower(table, file_io, consumer)
    follower.go(restart)
    return follower


def drawn(name: str, calls: int) -> list[int]:
    """Numbers of the requests of which one goes wrong: each in the long form, in the short one a sixteenth of them."""
    return [number for number in range(1, calls + 1) if is_drawn(f"{name} {number}", 1 if SOAK else 16)]


@pytest.mark.parametrize(
    ("kind", "name"), [*(("append", name) for name in FAULTS), ("input", "404"), ("input", "truncated")]
)
def test_a_fault_at_any_request_loses_and_repeats_nothing(tables: dict[str, Table], kind: str, name: str) -> None:
    table = tables[kind]
    fine = follow(table, None, 0, consumer=True, restart=False)
    assert len(fine.found) == (8 if kind == "append" else 5) + 4 * (LAST - FIRST)
    calls = len(fine.file_io.calls)
    assert calls > 30
    for number in drawn(f"{kind} {name}", calls):
        follower = follow(table, FAULTS[name], number, consumer=number % 2 == 0, restart=False)
        assert follower.found == fine.found, (number, follower.errors)
        # What passes is retried without the caller's seeing it.
        if name in ("reset", "503", "answer lost", "delayed", "hanging"):
            assert follower.errors == [], number
        if name == "truncated":
            assert all(str(getattr(error, "path", "")).endswith(".parquet") for error in follower.errors), number


@pytest.mark.parametrize("kind", ["append", "input"])
def test_an_outage_from_any_request_on_is_one_retriable_error_after_bounded_retries(
    tables: dict[str, Table], kind: str
) -> None:
    """The same call fails until the retries are used up; the same scan, or a restart by position, goes on exactly."""
    table = tables[kind]
    fine = follow(table, None, 0, consumer=False, restart=False)
    for restart in (False, True):
        for number in every(6, range(1 + restart, len(fine.file_io.calls) + 1)):
            shutil.rmtree(table.path / "consumer", ignore_errors=True)
            file_io = FaultFileIO()
            for each in range(number, number + 5):
                file_io.at(each, failing(UNAVAILABLE))
            follower = Follower(table, file_io, consumer=False)
            follower.go(restart)
            assert follower.found == fine.found, (number, follower.errors)
            assert all(isinstance(error, StoreError) and error.retriable for error in follower.errors)
            assert len(follower.errors) <= 3


@pytest.mark.parametrize("kind", ["append", "input"])
def test_restarts_by_consumer_repeat_only_what_was_not_saved(tables: dict[str, Table], kind: str) -> None:
    table = tables[kind]
    fine = follow(table, None, 0, consumer=True, restart=False)
    for number in drawn(f"restarts {kind}", len(fine.file_io.calls)):
        follower = follow(table, failing(FORBIDDEN), number, consumer=True, restart=True)
        saved = None
        for life, saved_then in zip(follower.lives, follower.saved, strict=True):
            rest = [each for each in fine.lives[0] if saved is None or each[0] >= saved]
            assert life == rest[: len(life)], (number, saved, follower.errors)
            saved = saved_then
            # Repeated are rows of its last snapshot only: asking for that one's plans confirmed all before.
            assert {snapshot for snapshot, _ in life if snapshot >= (saved or FIRST)} <= {each[0] for each in life[-1:]}
        assert life == rest and saved == LAST + 1, (number, follower.errors)


def test_a_wrong_permission_names_the_file(tables: dict[str, Table]) -> None:
    file_io = FaultFileIO()
    scan = tables["append"].builder(file_io).with_start("earliest").new_streaming_scan()
    file_io.wherever(lambda call: call.answer() if "manifest" not in call.name else failing(FORBIDDEN)(call))
    with pytest.raises(CorruptTableError, match="credentials") as caught:
        scan.plan()
    assert "/manifest/" in caught.value.path and not caught.value.retriable
    file_io.wherever(None)
    assert len(available(scan)) > 0
    scan.close()


def test_a_store_that_hangs_is_a_timeout(tables: dict[str, Table]) -> None:
    file_io = FaultFileIO()
    scan = tables["append"].builder(file_io).with_start("earliest").new_streaming_scan()
    over = threading.Event()
    file_io.wherever(lambda call: hang(over) or call.answer())
    with pytest.raises(IOTimeoutError) as caught:
        scan.plan()
    assert caught.value.retriable and isinstance(caught.value, TimeoutError)
    over.set()
    file_io.wherever(None)
    assert len(available(scan)) > 0
    assert scan.metrics.abandoned_requests > 0
    scan.close()


Damage = Callable[[Path], None]


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _garbage(path: Path) -> None:
    path.write_bytes(b"\x00garbage" * 8)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [_truncate, _garbage, _empty, Path.unlink])
@pytest.mark.parametrize("what", ["snapshot", "deltaManifestList", "manifest", "data"])
def test_a_damaged_file_is_named_nothing_is_skipped_and_repair_helps(tmp_path: Path, damage: Damage, what: str) -> None:
    table = Table(tmp_path / "w").commit_each(range(1, 7))
    damaged = 4
    path = _file(table, what, damaged)
    content = path.read_bytes()
    damage(path)
    builder = table.builder().with_start("earliest").with_catch_up("replay")
    scan, read = builder.new_streaming_scan(), builder.new_read()
    found: list[int] = []
    plan = None
    with pytest.raises(CorruptTableError) as caught:
        for _ in range(30):
            plan = scan.plan()
            found += keys(read, [plan] if plan else [])
    assert Path(caught.value.path).name == path.name
    assert found == [1, 2, 3]
    with pytest.raises(CorruptTableError):
        keys(read, [plan]) if what == "data" else scan.plan()
    path.write_bytes(content)
    left = [plan] if what == "data" else []
    assert keys(read, left + available(scan)) == [4, 5, 6]
    scan.close()


def _file(table: Table, what: str, number: int) -> Path:
    if what == "snapshot":
        return table.snapshot_path(number)
    if what == "deltaManifestList":
        return table.path / "manifest" / str(table.snapshot(number)[what])
    if what == "manifest":
        reference = table.builder().new_streaming_scan()._driver.parts.get().directory
        lists = reference.manifests.manifest_lists([table.snapshot(number)["deltaManifestList"]])
        return table.path / "manifest" / str(lists[0]["file_name"][0].as_py())
    builder = table.builder().with_start(snapshot_id=number).with_end(snapshot_id=number)
    (plan,) = available(builder.new_streaming_scan())
    return Path(plan.splits()[0].files[0].file_path)


def test_wrong_hints_change_nothing(tmp_path: Path) -> None:
    table = Table(tmp_path / "w").commit_each(range(1, 5))
    for hint in ("LATEST", "EARLIEST"):
        for lie in ("1", "3", "99", "-1", "", "nonsense"):
            (table.path / "snapshot" / hint).write_text(lie)
            for start, wanted in (("earliest", [1, 2, 3, 4]), ("latest-full", [4]), ("latest", [])):
                scan = table.builder().with_start(start).with_catch_up("replay").new_streaming_scan()
                assert snapshots(available(scan)) == wanted, (hint, lie, start)
                scan.close()
            (table.path / "snapshot" / hint).unlink()
