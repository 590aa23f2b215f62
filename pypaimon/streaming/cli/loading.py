"""The bar that a terminal shows while rows are written."""

from __future__ import annotations

import os
import stat
from io import BufferedReader

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class LoadingBar:
    """How much of an input was read, of a file with the share of its bytes.

    Args:
        console: The terminal; None shows nothing.
        data: The input.
    """

    def __init__(self, console: Console | None, data: BufferedReader | None = None) -> None:
        self._data = data
        self._total = None if data is None else _size(data)
        self._progress = None if console is None else _progress(console)
        if self._progress is not None:
            self._task = self._progress.add_task("", total=self._total, done="starting")

    @staticmethod
    def on(console: Console, data: BufferedReader | None = None) -> LoadingBar:
        """A bar on a terminal; nothing elsewhere."""
        return LoadingBar(console if console.is_terminal else None, data)

    def __enter__(self) -> LoadingBar:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def shows(self, text: str) -> None:
        """Say how far it is."""
        if self._progress is not None:
            self._progress.update(self._task, done=text)

    def reached(self, rows: int, commits: int) -> None:
        """So many rows were read, and so many commits made, in all."""
        if self._progress is None:
            return
        read = None if self._total is None or self._data is None else min(self._data.tell(), self._total)
        self._progress.update(self._task, completed=read, done=f"{rows:,} rows, {commits:,} commits")


def _size(data: BufferedReader) -> int | None:
    """Bytes of a file; None of a pipe or a terminal."""
    try:
        found = os.fstat(data.fileno())
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _progress(console: Console) -> Progress:
    columns = (
        SpinnerColumn("line"),
        TextColumn("writing"),
        BarColumn(),
        TextColumn("{task.fields[done]}"),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
