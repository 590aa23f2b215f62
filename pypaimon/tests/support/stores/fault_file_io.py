"""A FileIO around the local one that counts, and goes wrong at a chosen call; as an object store at `object://<path>`."""

from __future__ import annotations

import io
import itertools
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from pypaimon.filesystem.local_file_io import LocalFileIO

SCHEME = "object://"
Fault = Callable[["Call"], Any]
"""Gives the answer of a call instead of the store: bytes, statuses, or an error that it raises."""


class Call:
    """One request.

    Attributes:
        number: From 1, over all kinds.
        kind: `read`, `list`, `write` or `delete`.
    """

    def __init__(self, number: int, kind: str, path: str, answer: Callable[[], Any]) -> None:
        self.number = number
        self.kind = kind
        self.path = path
        self.answer = answer

    @property
    def name(self) -> str:
        return self.path.rstrip("/").rsplit("/", 1)[-1]


class FaultFileIO(LocalFileIO):
    """Reads are one request that gives all bytes, writes one that puts them.

    Attributes:
        calls: What was asked, (kind, path), in order.
        gate: Requests wait until it is set.
        asked: Set whenever a request comes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.asked = threading.Event()
        self._faults: dict[int, Fault] = {}
        self._wherever: Fault | None = None
        self._lock = threading.Lock()

    def at(self, number: int, fault: Fault) -> None:
        """Let a call go wrong; numbers count from the last `forget`."""
        self._faults[number] = fault

    def wherever(self, fault: Fault | None) -> None:
        """Let every call go through this."""
        self._wherever = fault

    def forget(self) -> None:
        with self._lock:
            self.calls.clear()
            self._faults.clear()
            self._wherever = None

    def names(self, kind: str | None = None) -> list[str]:
        return [path.rsplit("/", 1)[-1] for each, path in self.calls if kind in (None, each)]

    def counts(self) -> Counter[str]:
        return Counter(kind for kind, _ in self.calls)

    def new_input_stream(self, path: str) -> Any:
        return io.BytesIO(self._ask("read", path, lambda: self._bytes(path)))

    def new_output_stream(self, path: str) -> Any:
        return _Put(lambda data: self._ask("write", path, lambda: self._put(path, data)))

    def list_status(self, path: str) -> Any:
        return self._ask("list", path, lambda: LocalFileIO.list_status(self, local(path)))

    def delete(self, path: str, recursive: bool = False) -> Any:
        return self._ask("delete", path, lambda: LocalFileIO.delete(self, local(path), recursive))

    def _to_file(self, path: str) -> Path:
        return Path(super()._to_file(local(path)))

    def _bytes(self, path: str) -> bytes:
        with LocalFileIO.new_input_stream(self, local(path)) as stream:
            data: bytes = stream.read()
        return data

    def _put(self, path: str, data: bytes) -> None:
        # As in an object store nobody sees the half of it, however slow the machine is.
        target = Path(local(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        half = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        half.write_bytes(data)
        half.replace(target)

    def _ask(self, kind: str, path: str, answer: Callable[[], Any]) -> Any:
        with self._lock:
            self.calls.append((kind, path))
            call = Call(len(self.calls), kind, path, answer)
            fault = self._faults.pop(call.number, None) or self._wherever
        self.asked.set()
        self.gate.wait()
        return answer() if fault is None else fault(call)


class HangingFileIO(FaultFileIO):
    """Calls hang until `go_on` is set, if `hangs` says so. `hanging` is set once one does, `written` after a write."""

    def __init__(self, hangs: Callable[[Call], object] = lambda call: False) -> None:
        super().__init__()
        self.hangs = hangs
        self.hanging, self.go_on, self.written = (threading.Event() for _ in range(3))
        self.wherever(lambda call: self.hang(call) if self.hangs(call) else self._pass(call))

    def hang(self, call: Call) -> Any:
        self.hanging.set()
        self.go_on.wait(600)
        return call.answer()

    def _pass(self, call: Call) -> Any:
        answer = call.answer()
        if call.kind == "write":
            self.written.set()
        return answer


def data_files_from(number: int) -> Callable[[Call], bool]:
    """Whether a call reads a data file, and at least this many were asked for."""
    count = itertools.count(1)
    return lambda call: call.path.endswith(".parquet") and next(count) >= number


class Meeting:
    """The first requests for some files wait until several of them are under way; the others pass."""

    def __init__(self, names: Collection[str], parties: int = 2) -> None:
        self._names = names
        self._missing = parties
        self._lock = threading.Lock()
        self._met = threading.Event()

    @property
    def met(self) -> bool:
        """Whether they were."""
        return self._met.is_set()

    def __call__(self, call: Call) -> Any:
        if call.name in self._names:
            with self._lock:
                self._missing -= 1
                if self._missing <= 0:
                    self._met.set()
            self._met.wait(300)
        return call.answer()


class _Put(io.BytesIO):
    def __init__(self, put: Callable[[bytes], None]) -> None:
        super().__init__()
        self._put = put

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._put(data)


def local(path: str) -> str:
    """Where an object lies."""
    return path.removeprefix(SCHEME)


def failing(error: OSError) -> Fault:
    """The call raises."""

    def fault(call: Call) -> Any:
        raise error

    return fault


def truncated(call: Call) -> Any:
    found = call.answer()
    return found[: len(found) // 2] if call.kind == "read" else found


def late(call: Call) -> Any:
    """The request takes effect, but its answer is lost."""
    call.answer()
    raise ConnectionResetError(104, "connection reset by peer")


RESET = ConnectionResetError(104, "connection reset by peer")
UNAVAILABLE = OSError("When reading information for key 'x': AWS Error SLOW_DOWN during HeadObject: HTTP status 503")
FORBIDDEN = OSError("When getting information: AWS Error ACCESS_DENIED during HeadObject operation: HTTP status: 403")
MISSING = OSError("When getting information: AWS Error RESOURCE_NOT_FOUND during HeadObject: HTTP status 404")


__all__ = ["SCHEME", "DyingStore"]


class DyingStore(FaultFileIO):
    """Objects `object://<path>` in local files.

    Attributes:
        steps_left: Steps until it dies, None for never; each request is two steps, before and after it took effect.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps_left: int | None = None
        self.dead = False
        self.wherever(self._in_two_steps)

    def dies_after(self, steps: int | None) -> None:
        """Die after so many steps from now; None: live on."""
        self.steps_left, self.dead = steps, False

    def _in_two_steps(self, call: Call) -> Any:
        self._step()
        answer = call.answer()
        self._step()
        return answer

    def _step(self) -> None:
        if self.steps_left is not None:
            self.dead = self.dead or self.steps_left == 0
            self.steps_left = max(self.steps_left - 1, 0)
        if self.dead:
            raise OSError("dead")
