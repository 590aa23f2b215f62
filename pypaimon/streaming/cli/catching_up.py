"""The bar that a terminal shows while a stream catches up."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class CatchingUp:
    """A bar from the first snapshot to the latest one, which goes once that is reached; of rows inside a plan.

    Args:
        console: The terminal; None shows nothing, and asks for nothing.
    """

    def __init__(self, console: Console | None) -> None:
        self._progress = None if console is None else _progress(console)
        self._first: int | None = None
        self._latest = -1
        if self._progress is not None:
            self._task = self._progress.add_task("", total=None, done="starting")

    def __enter__(self) -> CatchingUp:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def rows(self, count: int, planned: int) -> None:
        """So many rows were printed in all, inside a plan of which there is more.

        Args:
            count: Those that were printed.
            planned: Records in the files of all plans so far. Merging and filters leave fewer rows of them.
        """
        if self._progress is not None:
            planned = max(count, planned)
            done = f"{count:,} of at most {planned:,} rows"
            self._progress.update(self._task, total=planned, completed=count, done=done)

    def reached(self, snapshot_id: int, count: int, latest: Callable[[], int | None]) -> None:
        """A snapshot was printed.

        Args:
            snapshot_id: Which one.
            count: Rows that were printed in all.
            latest: Asks for the latest one.
        """
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


def _progress(console: Console) -> Progress:
    columns = (
        SpinnerColumn("line"),
        TextColumn("catching up"),
        BarColumn(),
        TextColumn("{task.fields[done]}"),
        TimeElapsedColumn(),
    )
    # With redirection, rows on stdout would be printed to the console of the bar.
    return Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
