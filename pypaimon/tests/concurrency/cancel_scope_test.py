"""Calls of a cancelled scope end; writes that have started are waited for, and no further ones start."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from pathlib import Path

import pytest

from pypaimon.streaming.concurrency.cancel_scope import CancelScope
from pypaimon.streaming.io.store import Store
from support.stores.fault_file_io import FaultFileIO, HangingFileIO

PATIENCE = 30
WRITES: dict[str, Callable[[Store, str], object]] = {
    "write": lambda store, path: store.write_atomic(path, b"new"),
    "replace": lambda store, path: store.replace(path, b"new", store.look(path, bytes)[1]),
    "delete": lambda store, path: store.delete(path),
}


@pytest.fixture
def file_io() -> FaultFileIO:
    return FaultFileIO()


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "file").write_bytes(b"old")
    return f"object://{tmp_path}/file"


def content(path: str) -> bytes | None:
    file = Path(path.removeprefix("object://"))
    return file.read_bytes() if file.exists() else None


@pytest.mark.parametrize("kind", WRITES)
def test_a_cancelled_scope_starts_no_write(file_io: FaultFileIO, path: str, kind: str) -> None:
    store, scope = Store(file_io), CancelScope()
    scope.cancel()
    with scope.entered(), pytest.raises(CancelledError):
        WRITES[kind](store, path)
    assert content(path) == b"old"
    assert file_io.counts()["write"] == file_io.counts()["delete"] == 0
    store.close()


@pytest.mark.parametrize("kind", WRITES)
def test_a_write_that_was_started_is_waited_for(hanging: HangingFileIO, path: str, kind: str) -> None:
    store, scope, ended = Store(hanging), CancelScope(), threading.Event()
    hanging.hangs = lambda call: call.kind in ("write", "delete")

    def write() -> None:
        with scope.entered():
            WRITES[kind](store, path)
            ended.set()

    thread = threading.Thread(target=write)
    thread.start()
    assert hanging.hanging.wait(PATIENCE)
    scope.cancel()
    hanging.go_on.set()
    thread.join(PATIENCE)
    assert ended.is_set()
    assert content(path) == (None if kind == "delete" else b"new")
    store.close()


def test_a_call_that_was_begun_as_it_ended_is_given_up_too() -> None:
    scope, given_up = CancelScope(), []
    scope.cancel()
    scope.add(Future(), lambda: given_up.append(True))
    assert given_up == [True]
