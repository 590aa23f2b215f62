"""Steps of a process, at one of which it dies, and processes that are forked to die."""

from __future__ import annotations

import io
import os
import signal
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pypaimon.filesystem.local_file_io import LocalFileIO


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Steps:
    """Counts steps, and calls back at one of them: by default the process is killed there."""

    def __init__(self, at: int | None, then: Callable[[], None] = die) -> None:
        self.count = 0
        self._at = at
        self._then = then
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self.count += 1
            now = self.count == self._at
        if now:
            self._then()


class SteppingFileIO(LocalFileIO):
    """The local store, with a step before and after each request, and in the middle of what is written."""

    def __init__(self, step: Callable[[], None]) -> None:
        super().__init__()
        self._step = step

    def new_input_stream(self, path: str) -> Any:
        self._step()
        with LocalFileIO.new_input_stream(self, path) as stream:
            data = stream.read()
        self._step()
        return io.BytesIO(data)

    def new_output_stream(self, path: str) -> Any:
        self._step()
        return _Output(LocalFileIO.new_output_stream(self, path), self._step)

    def list_status(self, path: str) -> Any:
        self._step()
        found = LocalFileIO.list_status(self, path)
        self._step()
        return found

    def delete(self, path: str, recursive: bool = False) -> bool:
        self._step()
        found = LocalFileIO.delete(self, path, recursive)
        self._step()
        return found


class _Output:
    def __init__(self, stream: Any, step: Callable[[], None]) -> None:
        self._stream = stream
        self._step = step

    def write(self, data: bytes) -> int:
        half = len(data) // 2
        for part in (data[:half], data[half:]):
            self._stream.write(part)
            self._stream.flush()
            self._step()
        return len(data)

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def forked(work: Callable[[], object]) -> int:
    """The id of a process that works, and ends with 3 after an error."""
    child = os.fork()
    if not child:
        try:
            work()
        except BaseException:  # noqa: BLE001 - the parent is told by the exit code
            traceback.print_exc()
            os._exit(3)
        os._exit(0)
    return child


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def steps_of(work: Callable[[], int], report: Path) -> int:
    """The number of steps of a process that lives to its end; 0 if it died."""
    report.write_text("0")
    status = exit_code(forked(lambda: report.write_text(str(work()))))
    if status not in (0, -signal.SIGKILL):
        raise RuntimeError(f"a process that was to die ended with {status}")
    return int(report.read_text())
