"""Commits of pypaimon that tests of one worker make again and again: the files of the first one are written anew.

Half of the tables of the tests begin with the same few commits, each of which costs pypaimon five milliseconds or more.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon.common.json_util import JSON
from pypaimon.filesystem.local_file_io import LocalFileIO

_MOST_SNAPSHOTS = 16
"""Commits behind them are seldom made twice."""
_MOST_BYTES = 1 << 16
_HINTS = ("snapshot/EARLIEST", "snapshot/LATEST")


@dataclass(frozen=True, slots=True)
class _Commit:
    """What a commit left: the files by their paths in the table, hints aside, and its snapshot."""

    files: dict[str, bytes]
    hints: dict[str, bytes]
    snapshot: dict[str, Any]


_kept: dict[str, _Commit] = {}
_of_this_test: set[str] = set()
_NEVER = "never"


def begin_test(anew: bool = False) -> None:
    """The next test may have each commit once: two tables of one test must not hold the same snapshot or file.

    Args:
        anew: It has none: all that it commits is made by pypaimon.
    """
    _of_this_test.clear()
    if anew:
        _of_this_test.add(_NEVER)


def commit_once(handle: Any, files: Sequence[pa.Table], overwrite: bool, commit: Callable[[], None]) -> None:
    """Make a commit, or write the files of an equal one: of the same rows, on the same state of an equal table.

    The snapshot has the time of now, the files that of the first commit. Tables in stores, in branches, and of threads
    are always committed to.

    Args:
        overwrite: Whether they replace what is there.
    """
    key = None if _NEVER in _of_this_test else _key(handle, files, overwrite)
    if key is None or key in _of_this_test:
        commit()
        return
    _of_this_test.add(key)
    path = Path(handle.table_path)
    if key in _kept:
        _write(path, _kept[key])
        return
    before = _names(path)
    commit()
    after = _names(path)
    if before <= after:
        _keep(key, path, after - before)


def _key(handle: Any, files: Sequence[pa.Table], overwrite: bool) -> str | None:
    """What decides the outcome of a commit; None: it is not to be kept."""
    if type(handle.file_io) is not LocalFileIO or threading.current_thread() is not threading.main_thread():
        return None
    if handle.current_branch() != "main" or sum(rows.nbytes for rows in files) > _MOST_BYTES:
        return None
    latest = _latest(Path(handle.table_path))
    if latest is None or latest.get("id", 0) > _MOST_SNAPSHOTS:
        return None
    schema = json.loads(JSON.to_json(handle.table_schema))
    for each in (latest, schema):
        each.pop("timeMillis", None)
    rows = [
        (str(each.schema), [[chunk.to_pylist() for chunk in column.chunks] for column in each.columns])
        for each in files
    ]
    # A test may have changed the hints, of which a commit writes one or none.
    return repr((schema, latest, _hints(Path(handle.table_path)), overwrite, rows, time.tzname))


def _hints(table: Path) -> dict[str, bytes]:
    return {name: (table / name).read_bytes() for name in _HINTS if (table / name).exists()}


def _latest(table: Path) -> dict[str, Any] | None:
    """The latest snapshot, empty where there is none; None: there is no such table here."""
    try:
        names = os.listdir(table / "snapshot")
    except FileNotFoundError:
        return {} if table.is_dir() else None
    ids = [int(name[9:]) for name in names if name.startswith("snapshot-") and name[9:].isdigit()]
    found: dict[str, Any] = json.loads((table / "snapshot" / f"snapshot-{max(ids)}").read_bytes()) if ids else {}
    return found


def _names(table: Path) -> set[str]:
    start = len(str(table)) + 1
    return {os.path.join(folder, name)[start:] for folder, _, names in os.walk(table) for name in names}


def _keep(key: str, table: Path, names: set[str]) -> None:
    snapshot = next((name for name in names if name.startswith("snapshot/snapshot-")), None)
    if snapshot is None:
        # A commit without changes makes no snapshot.
        return
    found = {name: (table / name).read_bytes() for name in names - {snapshot, *_HINTS}}
    _kept[key] = _Commit(found, _hints(table), json.loads((table / snapshot).read_bytes()))


def _write(table: Path, commit: _Commit) -> None:
    for name, content in commit.files.items():
        path = table / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    folder = table / "snapshot"
    folder.mkdir(exist_ok=True)
    draft = folder / ".draft"
    # Tests read by time, so no two snapshots have the same one, and none has one to come. A copy takes no millisecond.
    before = (_latest(table) or {}).get("timeMillis", 0)
    now = time.time_ns() // 1_000_000
    if before == now:
        time.sleep(0.001)
        now += 1
    draft.write_text(json.dumps({**commit.snapshot, "timeMillis": max(now, before + 1)}))
    draft.rename(folder / f"snapshot-{commit.snapshot['id']}")
    for name, content in commit.hints.items():
        (table / name).write_bytes(content)
