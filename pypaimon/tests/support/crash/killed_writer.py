"""Writers that are killed again and again by a signal: this script forks one after the other and tells what is there.

Each goes on where the table, or for pypaimon its own list of commits, says that the last one came, and commits until it
is killed, some time after it began.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars  # noqa: F401 - imported once, before the forks
import pyarrow as pa

from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.crash.steps import exit_code, forked
from support.tables.streamed_table import KEYED, USER, Table
from support.tables.written_tables import key_value_table

KEYS = 50
"""So many keys a table with a primary key has; each commit changes two of them."""
LIVES_TAKE = 3
"""About so many commits a writer makes before it is killed."""

UNDISTURBED = 3
"""So many live first, which tells how long a life takes."""


def rows_of(identifier: int, keyed: bool) -> pa.Table:
    """What a commit writes: two keys of its own, or new values of two of the same few."""
    keys = [identifier % KEYS, KEYS + identifier % (KEYS - 1)] if keyed else [2 * identifier, 2 * identifier + 1]
    return pa.table({"k": keys, "v": [str(identifier)] * 2}, schema=KEYED)


def ours(table: Table, keyed: bool, noted: Path) -> Iterator[int]:
    """Commits of this library: where it goes on the table says."""
    with table.writer().open_sync() as writer:
        identifier = -1 if writer.last_committed is None else writer.last_committed
        while True:
            identifier += 1
            writer.write(rows_of(identifier, keyed))
            writer.commit(identifier)
            yield identifier


def pypaimons(table: Table, keyed: bool, noted: Path) -> Iterator[int]:
    """Commits of pypaimon's stream writer: where it goes on the program has to know, which notes what was committed."""
    builder = table.handle().new_stream_write_builder()
    builder.commit_user = USER
    writer, commit = builder.new_write(), builder.new_commit()
    identifier = max(map(int, noted.read_text().split()), default=-1)
    while True:
        identifier += 1
        writer.write_arrow(rows_of(identifier, keyed))
        commit.commit(writer.prepare_commit(identifier), identifier)
        yield identifier


WRITERS: dict[str, Callable[[Table, bool, Path], Iterator[int]]] = {"ours": ours, "pypaimon": pypaimons}


def life(commits: Callable[[], Iterator[int]], noted: Path, seconds: float | None, until: int | None = None) -> float:
    """A process that commits and notes each commit behind it, until it is killed or has made one; how long it took."""
    ready, begun = os.pipe()

    def work() -> None:
        os.write(begun, b".")
        with noted.open("a") as file:
            for count, identifier in enumerate(commits(), 1):
                file.write(f"{identifier}\n")
                file.flush()
                if count == until:
                    break

    child = forked(work)
    os.read(ready, 1)
    began = time.perf_counter()
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    status = exit_code(child)
    os.close(ready)
    os.close(begun)
    if status != (0 if seconds is None else -signal.SIGKILL):
        raise RuntimeError(f"a writer ended with {status}")
    return time.perf_counter() - began


def found(table: Table, keyed: bool, noted: Path) -> dict[str, Any]:
    """What the table holds beside what was committed."""
    acknowledged = set(map(int, noted.read_text().split()))
    there = Counter(table.snapshot(each)["commitIdentifier"] for each in table.ids())
    last = max(there)
    expected: Counter[tuple[Any, ...]] = Counter()
    state: dict[int, str] = {}
    for identifier in range(last + 1):
        rows = [tuple(row.values()) for row in rows_of(identifier, keyed).to_pylist()]
        state |= dict(rows)
        expected += Counter(() if keyed else rows)
    expected = Counter(state.items()) if keyed else expected
    rows_there = Counter(table.rows())
    return {
        "commits": last + 1,
        "lost commits": sorted((acknowledged | set(range(last + 1))) - set(there)),
        "repeated commits": sorted(each for each, count in there.items() if count > 1),
        "lost rows": (expected - rows_there).total(),
        "repeated rows": (rows_there - expected).total(),
        "gaps": sorted(set(range(1, table.latest() + 1)) - set(table.ids())),
        "orphans": Counter(kind_of(path) for path in orphans(table)),
        "missing": sorted(map(str, named(table) - set(files(table)))),
    }


def files(table: Table) -> list[str]:
    return [str(path.relative_to(table.path)) for path in table.path.rglob("*") if path.is_file()]


def named(table: Table) -> set[str]:
    """Files that a snapshot names, and what belongs to the table without one."""
    directory, names = TableDirectory.of(table.handle()), set[str]()
    for number in table.ids():
        snapshot = table.snapshot(number)
        lists = [snapshot[each] for each in ("baseManifestList", "deltaManifestList")]
        manifests = pa.concat_tables(directory.manifests.manifest_lists(lists))
        names |= {f"snapshot/snapshot-{number}", *(f"manifest/{each}" for each in lists)}
        names |= {f"manifest/{each}" for each in manifests["file_name"].to_pylist()}
    # Nothing was rewritten, so that each data file is live still.
    latest = table.handle().new_read_builder().new_scan().plan()
    names |= {str(Path(file.file_path).relative_to(table.path)) for split in latest.splits() for file in split.files}
    return names


def orphans(table: Table) -> list[str]:
    kept = ("snapshot/LATEST", "snapshot/EARLIEST", "schema/schema-0")
    own = [f"consumer/{prefix}{USER}" for prefix in ("consumer-", "sink-")]
    return sorted(set(files(table)) - named(table) - {*kept, *own})


def kind_of(path: str) -> str:
    """What an orphan is, as the documentation names it."""
    home, _, name = path.rpartition("/")
    if name.startswith("."):
        return "half-written"
    if home == "manifest":
        return "manifest"
    return "data" if name.startswith("data-") else f"other: {path}"


def main() -> None:
    """Arguments: a directory, `append` or `keyed`, who writes, how many are killed, a seed."""
    directory, kind, who, kills, seed = Path(sys.argv[1]), *sys.argv[2:4], int(sys.argv[4]), sys.argv[5]
    keyed, drawn = kind == "keyed", random.Random(seed)
    table, noted = key_value_table(directory, keyed=keyed), directory / "noted"
    noted.touch()

    def commits() -> Iterator[int]:
        return WRITERS[who](table, keyed, noted)

    usual = [life(commits, noted, None, LIVES_TAKE) for _ in range(UNDISTURBED)]
    for _ in range(kills):
        life(commits, noted, drawn.uniform(0, 2 * max(usual)))
    life(commits, noted, None, 1)
    print(json.dumps(found(table, keyed, noted)))


if __name__ == "__main__":
    main()
