"""The life of a table on real servers: written, compacted, maintained by two at once. Rows and files as on a disk."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow.fs import FileType
from pypaimon import CatalogFactory, Schema

from pypaimon.streaming import MaintenanceConflictError, MaintenancePolicy, compact, maintain
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.maintenance import create_branch, create_tag, delete_branch, delete_tag, list_tags, rollback
from support.stores.real_servers import hdfs, seaweed
from support.stores.s3_server import forget_clients
from support.tables.handles import sorted_rows, write_by_stream
from support.tables.named_files import files_of, needed_files

pytestmark = [pytest.mark.server, pytest.mark.slow]

COLUMNS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
TWO_LEFT = MaintenancePolicy(min_snapshots=2, max_snapshots=2, orphan_age=0, young_orphans=True)
Server = Callable[[Path], AbstractContextManager[dict[str, str]]]


def life(catalog: Any, copies: Path) -> list[tuple[Any, Counter[str]]]:
    """What is in the table, and how many files of each kind, after each part of its life."""
    seen: list[tuple[Any, Counter[str]]] = []
    catalog.create_database("db", True)
    schema = Schema.from_pyarrow_schema(COLUMNS, primary_keys=["k"], options={"bucket": "1"})
    catalog.create_table("db.t", schema, False)

    def table(branch: str = "") -> Any:
        return catalog.get_table(f"db.t$branch_{branch}" if branch else "db.t")

    def write(key: int, branch: str = "") -> None:
        write_by_stream(table(branch), pa.table({"k": [key], "v": ["x"]}, schema=COLUMNS))

    def look() -> None:
        rows = [sorted_rows(table(each)) for each in ("", *branches)]
        tags = [(each.name, each.snapshot.id) for each in list_tags(table())]
        copy = copies / f"{len(seen)}"
        _copy(Store(table().file_io), str(table().table_path), copy)
        files = files_of(copy)
        assert files == needed_files(copy)
        ids = sorted(path.name for path in copy.glob("snapshot/snapshot-*"))
        seen.append(((rows, tags, ids), Counter(name.partition("-")[0] for name in files)))

    branches: list[str] = []
    for key in range(4):
        write(key)
    create_tag(table(), "kept", snapshot=2)
    create_branch(table(), "b", tag="kept")
    branches.append("b")
    write(50, "b")
    compact(table(), full=True)
    two_at_once(table)
    look()
    for key in (4, 5):
        write(key)
    rollback(table(), snapshot_id=6)
    # The files of snapshot 7 are orphans now, as are those of writers that have died.
    Store(table().file_io).write_atomic(f"{table().table_path}/bucket-0/data-lost-0.parquet", b"lost")
    two_at_once(table)
    look()
    rollback(table(), tag="kept")
    two_at_once(table)
    look()
    delete_branch(table(), "b")
    branches.clear()
    delete_tag(table(), "kept")
    write(6)
    compact(table(), full=True)
    two_at_once(table)
    look()
    return seen


def two_at_once(table: Callable[[], Any]) -> None:
    """Two maintainers begin at the same time. One that is disturbed too often leaves its part to the next run."""
    begin = threading.Barrier(2)

    def run(_: int) -> None:
        begin.wait()
        with suppress(MaintenanceConflictError):
            maintain(table(), TWO_LEFT)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(run, range(2)))
    maintain(table(), TWO_LEFT)


def _copy(store: Store, directory: str, to: Path) -> None:
    to.mkdir(parents=True)
    for status in store.list_statuses(directory):
        name = str(status.path).rstrip("/").rpartition("/")[2]
        if status.type == FileType.Directory:
            _copy(store, f"{directory}/{name}", to / name)
        else:
            (to / name).write_bytes(store.read(f"{directory}/{name}"))


# Closing a file takes half a second on HDFS: its name node is asked again then.
@pytest.mark.parametrize("server", [seaweed, pytest.param(hdfs, marks=[pytest.mark.java, pytest.mark.nightly])])
def test_the_life_of_a_table(server: Server, tmp_path: Path) -> None:
    on_disk = life(CatalogFactory.create({"warehouse": str(tmp_path / "disk")}), tmp_path / "copies of disk")
    (tmp_path / "server").mkdir()
    forget_clients()
    with server(tmp_path / "server") as options:
        assert life(CatalogFactory.create(options), tmp_path / "copies") == on_disk
    forget_clients()
