"""The disk is full, or credentials end, at any moment: an error that says what to do, nothing visible, and then on."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.filesystem.local_file_io import LocalFileIO

from pypaimon.streaming import PaimonStreamError, stream_write_builder
from pypaimon.streaming.commit import publishing
from pypaimon.streaming.errors import WriterClosedError
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.samples import SOAK, seeded
from support.stores.s3_server import S3Server
from support.tables.handles import batch_table, create_table
from support.tables.streamed_table import Table
from support.tables.written_tables import key_value_table, rows

pytestmark = [pytest.mark.server, pytest.mark.soak]

QUICK = {"commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "1 ms", "commit.max-retries": "2"}


class Disk:
    """So many bytes are left on it, for all that is written through `opened`."""

    def __init__(self, left: float = float("inf")) -> None:
        self.left = left
        self.used = 0

    def take(self, size: int) -> int:
        """Bytes that fit."""
        fitting = int(min(size, self.left))
        self.left, self.used = self.left - fitting, self.used + fitting
        return fitting

    def opened(self, *arguments: Any, **settings: Any) -> Any:
        return _File(self, open(*arguments, **settings))


class _File:
    def __init__(self, disk: Disk, file: Any) -> None:
        self._disk, self._file = disk, file

    def write(self, data: Any) -> int:
        fitting = self._disk.take(len(data))
        self._file.write(data[:fitting])
        if fitting < len(data):
            self._file.flush()
            raise OSError(errno.ENOSPC, "No space left on device")
        return fitting

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class OnDisk(LocalFileIO):  # type: ignore[misc]
    """Writes to a disk."""

    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self._disk = disk

    def new_output_stream(self, path: str) -> Any:
        return _File(self._disk, super().new_output_stream(path))


def without_pauses(table: Any) -> None:
    """Its requests are repeated at once."""
    TableDirectory.of(table).store._common.sleep = lambda _: None


def write_on(table: Table, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two commits of a writer whose disk it is; the first one on another."""
    builder = table.writer()
    builder._table.handle.file_io = OnDisk(disk)
    without_pauses(builder._table.handle)
    left, disk.left = disk.left, float("inf")
    with monkeypatch.context() as patched, builder.open_sync() as writer:
        patched.setattr(publishing, "open", disk.opened, raising=False)
        writer.write(rows(1))
        writer.commit()
        disk.left, disk.used = left, 0
        try:
            writer.write(rows(2, 3, value="second"))
            writer.commit()
        except PaimonStreamError:
            with pytest.raises(WriterClosedError):
                writer.commit()
            raise


@pytest.mark.parametrize("keyed", [False, True], ids=["append", "keyed"])
def test_a_full_disk(
    tmp_path: Path, keyed: bool, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """At any byte: of a data file, of a manifest, of the record of a commit, of the snapshot."""
    disk = Disk()
    write_on(key_value_table(tmp_path / "all", keyed=keyed), disk, monkeypatch)
    # The last file is the snapshot, of about a thousand bytes; others are a few bytes longer or shorter each time.
    size = disk.used - 300
    drawn: random.Random = seeded(request.node.name)
    lefts = range(0, size, 10) if SOAK else sorted({0, size - 1, *(drawn.randrange(size) for _ in range(4))})
    for left in lefts:
        table = key_value_table(tmp_path / str(left), keyed=keyed, **QUICK)
        with pytest.raises(PaimonStreamError, match="no space is left: free some") as caught:
            write_on(table, Disk(left), monkeypatch)
        assert "may have been committed" not in str(caught.value)
        assert table.rows() == [(1, "v1")]
        assert len(table.data_files()) == 1, left
        with table.writer().open_sync() as writer:
            assert writer.last_committed == 0
            writer.write(rows(4))
            writer.commit()
        assert table.rows() == [(1, "v1"), (4, "v4")]
        temporaries = [path for path in table.path.rglob(".*") if not path.name.endswith(".crc")]
        assert temporaries == [], left


@contextmanager
def ended(server: S3Server, name: str, status: int, after: int) -> Iterator[Any]:
    """From a request on every one is answered as S3 does it when credentials have ended."""
    with server.failing(f"/{name}/", *[None] * after, *[status] * 10_000) as waiting:
        yield waiting


@pytest.mark.parametrize("status", [400, 403])
def test_credentials_end(server: S3Server, status: int, request: pytest.FixtureRequest) -> None:
    """Behind any request of a write and a commit."""
    catalog = server.catalog(f"ended-{status}")
    catalog.create_database("db", True)
    columns = pa.schema([("k", pa.int64())])
    drawn = seeded(request.node.name)
    for after in range(1, 60) if SOAK else sorted(drawn.sample(range(18), 2)):
        name = f"t{after}"
        table = create_table(catalog, name, columns, options=QUICK)
        without_pauses(table)
        with stream_write_builder(table).with_commit_user("writer").open_sync() as writer:
            writer.write(pa.table({"k": [0]}))
            writer.commit()
            error = None
            with ended(server, name, status, after):
                try:
                    writer.write(pa.table({"k": [1]}))
                    writer.commit()
                except PaimonStreamError as failed:
                    error = failed
        fresh = server.catalog(f"ended-{status}").get_table(f"db.{name}")
        with stream_write_builder(fresh).with_commit_user("writer").open_sync() as writer:
            done = writer.last_committed == 1
            assert done or error is not None
            assert error is None or "credentials" in str(error)
            if not done:
                writer.write(pa.table({"k": [1]}))
                writer.commit()
        found = batch_table(fresh)
        assert sorted(found["k"].to_pylist()) == [0, 1]
        if error is None:
            break


def test_a_store_whose_credentials_ended_does_not_count_as_one_without_conditions(server: S3Server) -> None:
    """Both are answered with status 400; without conditions later commits could replace those of others."""
    catalog = server.catalog("conditions")
    catalog.create_database("db", True)
    table = create_table(catalog, "t", pa.schema([("k", pa.int64())]), options=QUICK)
    with stream_write_builder(table).with_commit_user("writer").open_sync() as writer:
        for key in range(2):
            writer.write(pa.table({"k": [key]}))
            with server.failing("/t/snapshot/snapshot-2", *[400] * key, method="PUT") as waiting:
                assert writer.commit().snapshot_id == key + 1
            assert not waiting
    assert TableDirectory.of(table).store.objects.creates(f"{table.table_path}/snapshot/snapshot-3")
