"""Progress bars on a terminal: while rows are written, and while a stream catches up."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from io import BufferedReader

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class LoadBar:
    """How many rows were written; of a file also which share of its bytes."""

    def __init__(self, console: Console, data: BufferedReader | None = None) -> None:
        self._data = data
        self._total = None if data is None else _size(data)
        self._progress = _progress(console, "writing") if console.is_terminal else None
        if self._progress is not None:
            self._task = self._progress.add_task("", total=self._total, done="starting")

    def __enter__(self) -> LoadBar:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, text: str) -> None:
        if self._progress is not None:
            self._progress.update(self._task, done=text)

    def reached(self, rows: int, commits: int) -> None:
        if self._progress is None:
            return
        read = None if self._total is None or self._data is None else min(self._data.tell(), self._total)
        self._progress.update(self._task, completed=read, done=f"{rows:,} rows, {commits:,} commits")


class CatchUpBar:
    """A bar from the first snapshot to the latest one, which disappears when that is reached.

    Args:
        console: The terminal; None shows nothing, and makes no requests.
    """

    def __init__(self, console: Console | None) -> None:
        self._progress = None if console is None else _progress(console, "catching up")
        self._first: int | None = None
        self._latest = -1
        if self._progress is not None:
            self._task = self._progress.add_task("", total=None, done="starting")

    def __enter__(self) -> CatchUpBar:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def rows(self, count: int, planned: int) -> None:
        if self._progress is not None:
            planned = max(count, planned)
            done = f"{count:,} of at most {planned:,} rows"
            self._progress.update(self._task, total=planned, completed=count, done=done)

    def reached(self, snapshot_id: int, count: int, latest: Callable[[], int | None]) -> None:
        if self._progress is None:
            return
        if self._first is None:
            self._first = snapshot_id
        if snapshot_id >= self._latest:
            self._latest = latest() or snapshot_id
        if snapshot_id >= self._latest:
            self._end()
            return
        total, done = self._latest - self._first + 1, snapshot_id - self._first + 1
        text = f"{done:,}/{total:,} snapshots, {count:,} rows"
        self._progress.update(self._task, total=total, completed=done, done=text)

    def _end(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def _size(data: BufferedReader) -> int | None:
    try:
        found = os.fstat(data.fileno())
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _progress(console: Console, text: str) -> Progress:
    columns = (
        SpinnerColumn("line"),
        TextColumn(text),
        BarColumn(),
        TextColumn("{task.fields[done]}"),
        TimeElapsedColumn(),
    )
    # With redirection, rows on stdout would be printed to the console of the bar.
    return Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
