"""Maintenance in an object store: how many requests it sends, and what happens if one of them is refused."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema

from pypaimon.streaming import CorruptTableError, MaintenancePolicy, StoreError, maintain
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.maintenance.roots import picture_of
from pypaimon.streaming.maintenance.seen_files import SeenFiles
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.stores.rest_server import RestServer
from support.stores.s3_server import BUCKET, S3Server, forget_clients, methods
from support.tables.orders import write

pytestmark = [pytest.mark.server, pytest.mark.slow]

COLUMNS = pa.schema([("k", pa.int64())])
LATEST_ONLY = MaintenancePolicy(min_snapshots=1, max_snapshots=1)
WITH_ORPHANS = MaintenancePolicy(min_snapshots=1, max_snapshots=1, orphan_age=0, young_orphans=True)
PARTS = ("bucket-0", "p=a%3Ab/bucket-0", "p=a & b/bucket-0")


@pytest.fixture
def table(server: S3Server, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A table of two commits, of which the first is to expire."""
    forget_clients()
    name = "".join(each if each.isalnum() else "_" for each in request.node.name).lower()
    catalog = server.catalog(name)
    catalog.create_database("db", True)
    catalog.create_table("db.t", Schema.from_pyarrow_schema(COLUMNS), False)
    table = catalog.get_table("db.t")
    for key in range(2):
        write(table, [{"k": key}], COLUMNS)
    yield catalog.get_table("db.t")
    server.objects.undeletable.clear()
    forget_clients()


def home(table: Any) -> str:
    return str(table.table_path).removeprefix(f"s3://{BUCKET}/")


def plans(table: Any) -> list[str]:
    names = Store(table.file_io).list_names(f"{table.table_path}/consumer")
    return [name for name in names if name.startswith("maintenance-")]


def add_orphans(server: S3Server, table: Any, count: int) -> list[str]:
    keys = [f"{home(table)}/bucket-0/data-{number}.parquet" for number in range(count)]
    server.objects.fill(BUCKET, keys, b"orphan")
    return keys


def test_a_thousand_objects_are_deleted_by_one_request(server: S3Server, table: Any) -> None:
    add_orphans(server, table, 3000)
    with server.asked() as asked:
        report = maintain(table, WITH_ORPHANS)
    assert report.plan.file_counts["orphan"] == 3000
    # The 3,000 files with the lists of the snapshot, and the snapshot itself.
    assert methods(asked)["POST"] == 4 + 1
    assert maintain(table, WITH_ORPHANS).plan.is_empty


@pytest.mark.parametrize("part", PARTS)
def test_keys_with_special_characters(server: S3Server, table: Any, part: str) -> None:
    store = Store(table.file_io)
    keys = [f"{home(table)}/{part}/{name}" for name in ("a", "b", "c%20d", "é&<e>")]
    server.objects.fill(BUCKET, keys, b"x")
    paths = [f"s3://{BUCKET}/{key}" for key in keys]
    assert store.read(paths[2]) == b"x"
    with server.asked() as asked:
        store.delete_all(paths[1:])
    assert methods(asked) == {"POST": 1}
    assert store.read_many(paths) == [b"x", None, None, None]


def test_objects_without_a_client_are_deleted_one_by_one(server: S3Server, table: Any, fast: bool) -> None:
    keys = add_orphans(server, table, 20)
    maintain(table, WITH_ORPHANS)
    assert Store(table.file_io).read_many([f"s3://{BUCKET}/{key}" for key in keys]) == [None] * 20
    assert maintain(table, WITH_ORPHANS).plan.is_empty


def test_a_store_that_cannot_delete_several_is_asked_for_each(server: S3Server, table: Any) -> None:
    keys = add_orphans(server, table, 20)
    with server.failing("?delete", 501, 501, 501) as faults, server.asked() as asked:
        maintain(table, WITH_ORPHANS)
    assert len(faults) == 2, "it is asked once"
    assert methods(asked)["POST"] == 1
    assert Store(table.file_io).read_many([f"s3://{BUCKET}/{key}" for key in keys]) == [None] * 20


@pytest.mark.parametrize(("code", "error"), [("AccessDenied", CorruptTableError), ("InternalError", StoreError)])
def test_a_refused_object_is_named_and_the_next_run_finishes(
    server: S3Server, table: Any, code: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    keys = add_orphans(server, table, 20)
    server.objects.undeletable[keys[7]] = code
    with pytest.raises(error, match=r"data-7\.parquet" if error is CorruptTableError else "failed repeatedly"):
        maintain(table, WITH_ORPHANS)
    assert len(plans(table)) == 1
    server.objects.undeletable.clear()
    report = maintain(table, LATEST_ONLY)
    assert report.resumed
    assert Store(table.file_io).read_many([f"s3://{BUCKET}/{key}" for key in keys]) == [None] * 20
    assert maintain(table, WITH_ORPHANS).plan.is_empty


def test_an_object_that_is_gone_counts_as_deleted(server: S3Server, table: Any) -> None:
    keys = add_orphans(server, table, 3)
    store = Store(table.file_io)
    paths = [f"s3://{BUCKET}/{key}" for key in keys]
    assert store.read(paths[0]) == b"orphan"
    server.objects.undeletable[keys[1]] = "NoSuchKey"
    store.delete_all(paths)
    assert store.read_many(paths) == [None, b"orphan", None]


def test_a_table_of_a_rest_catalog(server: S3Server, table: Any, fast: bool) -> None:
    rest = RestServer(server, table, lambda: int(time.time() * 1000))
    try:
        lent = CatalogFactory.create(rest.options).get_table("db.t")
        before = rest.lent
        report = maintain(lent, LATEST_ONLY)
        assert report.plan.snapshot_ids == (1,) and rest.lent >= before
        assert table.snapshot_manager().get_latest_snapshot().id == 2
        assert maintain(lent, LATEST_ONLY).plan.is_empty
    finally:
        rest.stop()
        server.keys = None


def test_nothing_is_read_twice(server: S3Server, table: Any) -> None:
    for key in range(2, 8):
        write(table, [{"k": key}], COLUMNS)
    # The last snapshot is the only one whose file is as young as the listing, so that it might be replaced unnoticed.
    server.objects.age(f"{home(table)}/snapshot/snapshot-", seconds=60, but=f"{home(table)}/snapshot/snapshot-8")
    with server.asked() as asked:
        report = maintain(table, MaintenancePolicy(min_snapshots=4, max_snapshots=4))
    assert report.plan.snapshot_ids == (1, 2, 3, 4)
    read = Counter(path.rpartition("/")[2] for method, path in asked if method == "GET" and "list-type" not in path)
    # The hint to the latest and the last snapshot show a rollback, the hint to the earliest another run.
    assert {name for name, number in read.items() if number > 1} == {"LATEST", "EARLIEST", "snapshot-8"}
    listed = [path for method, path in asked if method == "GET" and "list-type" in path]
    assert all("delimiter=" in path and "prefix=" in path for path in listed)
    prefixes = [unquote(path.partition("prefix=")[2].partition("&")[0]) for path in listed]
    directories = Counter(each.rstrip("/").rpartition("/")[2] for each in prefixes)
    # To plan, and before the first deletion what may have appeared; before other files go, what is left. The consumers
    # need not be listed the last time, because the snapshots are gone then, but before the hint is moved, with the
    # plans and pins of others.
    assert directories == {"branch": 3, "tag": 3, "snapshot": 2, "changelog": 2, "consumer": 3}


def test_a_snapshot_that_was_replaced_is_read_again(server: S3Server, table: Any) -> None:
    directory = TableDirectory.of(table)
    path = f"{home(table)}/snapshot/snapshot-1"
    server.objects.age(path, seconds=60)
    seen = SeenFiles()
    (first, _) = picture_of(directory, seen).own.snapshots
    with server.asked() as asked:
        assert picture_of(TableDirectory.of(table), seen).own.snapshots[0] == first
    assert not [asked_for for _, asked_for in asked if asked_for.endswith("/snapshot-1")]
    data = (
        Store(table.file_io)
        .read(f"s3://{BUCKET}/{path}")
        .replace(first.commit_user.encode(), b"another user".ljust(36))
    )
    server.objects.fill(BUCKET, [path], data)
    assert picture_of(TableDirectory.of(table), seen).own.snapshots[0].commit_user != first.commit_user
