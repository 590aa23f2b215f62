"""A request of a commit fails, or its answer is lost, at every place: 0 rows lost, 0 twice, no live file deleted."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from pypaimon import Schema
from pypaimon.filesystem.local_file_io import LocalFileIO

from pypaimon.streaming.commit.idempotent_commit import commit_once
from pypaimon.streaming.commit.request import CommitReport, CommitRequest
from pypaimon.streaming.commit.session import CommitSession
from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from support.crash.crashing_file_io import MortalFileIO
from support.samples import SOAK, sample_seed
from support.spark.sink_world import COLUMNS, World, write
from support.stores.lossy_store import SCHEME, lossy_links
from support.stores.s3_server import S3Server
from support.tables.handles import batch_table

pytestmark = [pytest.mark.server, pytest.mark.soak]

Fault = Literal["refused", "lost"]
QUICK = {"commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "1 ms", "commit.max-retries": "2"}
LAST = 40
STEP = 1 if SOAK else 9
FIRST = sample_seed() % STEP


class FaultyFileIO(LocalFileIO):  # type: ignore[misc]
    """Files on disk, also as objects at `object://<path>`; requests fail as they are told.

    Attributes:
        fault: What becomes of a request: it is refused, or done and told as refused.
    """

    def __init__(self, fault: Fault, first: int, *, lasting: bool) -> None:
        super().__init__()
        self.fault, self.first, self.lasting = fault, first, lasting
        self.asked = 0
        self.armed = False

    def _to_file(self, path: str) -> Path:
        return Path(str(super()._to_file(path.removeprefix(SCHEME))))

    def new_output_stream(self, path: str) -> Any:
        return _Written(self, path)

    def do(self, request: Callable[[], Any]) -> Any:
        if not self.armed:
            return request()
        self.asked += 1
        failing = self.asked == self.first or (self.lasting and self.asked > self.first)
        if failing and self.fault == "refused":
            raise PermissionError(errno.EACCES, "told so")
        answer = request()
        if failing:
            if hasattr(answer, "close"):
                answer.close()
            raise PermissionError(errno.EACCES, "told so, and done")
        return answer


def _faulty(name: str) -> Callable[..., Any]:
    def request(self: FaultyFileIO, *arguments: Any, **settings: Any) -> Any:
        return self.do(lambda: getattr(LocalFileIO, name)(self, *arguments, **settings))

    return request


class _Written:
    """A stream whose closing is the request: what is written lies there then."""

    def __init__(self, file_io: FaultyFileIO, path: str) -> None:
        self._file_io, self._path, self._data = file_io, path, b""

    def __enter__(self) -> _Written:
        return self

    def write(self, data: bytes) -> None:
        self._data += data

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None:
            self._file_io.do(self._close)

    def _close(self) -> None:
        with LocalFileIO.new_output_stream(self._file_io, self._path) as stream:
            stream.write(self._data)


for _name in ("new_input_stream", "list_status", "exists", "delete", "rename", "mkdirs", "get_file_size"):
    setattr(FaultyFileIO, _name, _faulty(_name))


def _commit(world: World, table: Any, identifier: int, session: CommitSession) -> CommitReport:
    messages = write(world.table(), world.rows_of(identifier), "query", False)
    return commit_once(CommitRequest(PaimonTable(table), "query", identifier, messages), session)


def _identifiers(world: World) -> list[int]:
    return [key for key, value in world.rows() if value == 0]


@pytest.mark.parametrize(
    ("store", "goes_on"),
    [
        ("disk", False),
        ("objects", True),
        pytest.param("disk", True, marks=pytest.mark.nightly),
        pytest.param("objects", False, marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("fault", ["refused", "lost"])
def test_a_fault_at_every_request(tmp_path: Path, fault: Fault, lasting: bool, store: str, goes_on: bool) -> None:
    """Of a writer that goes on, and of one that begins anew."""
    for first in range(1 + FIRST, LAST, STEP):
        world = World(tmp_path / str(first))
        file_io = FaultyFileIO(fault, first, lasting=lasting)
        table = world.table(file_io).copy_without_time_travel(QUICK)
        if store == "objects":
            table.table_path = f"{SCHEME}{world.path}"
        session = CommitSession()
        for identifier in range(3):
            _commit(world, table, identifier, session)
        file_io.armed = True
        text = ""
        try:
            _commit(world, table, 3, session if goes_on else CommitSession())
        except PaimonStreamError as error:
            text = str(error)
        file_io.armed = False
        # A commit that did not fail is there, one that says that its files are gone has left none.
        if not text:
            assert _identifiers(world) == [0, 1, 2, 3]
        elif "its files are deleted" in text and fault == "refused" and not lasting:
            assert world.data_files() == world.live_files()
        world.attempt(3, MortalFileIO())
        assert _identifiers(world) == [0, 1, 2, 3]
        assert not world.attempt(4, MortalFileIO()).repeated
        assert _identifiers(world) == [0, 1, 2, 3, 4]
        assert world.live_files() <= world.data_files()
        if file_io.asked < first:
            break
    assert 4 < first < LAST - STEP


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_link_is_made_and_reported_as_a_failure(
    tmp_path: Path, goes_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, session = World(tmp_path), CommitSession()
    table = world.table()
    _commit(world, table, 0, session)
    with lossy_links(monkeypatch):
        report = _commit(world, table, 1, session if goes_on else CommitSession())
    assert (report.snapshot_id, report.repeated) == (2, False)
    assert _identifiers(world) == [0, 1] and world.data_files() == world.live_files()


@pytest.mark.parametrize("fault", ["lost", 403])
def test_a_fault_at_every_request_to_a_store_that_compares(server: S3Server, fault: str | int) -> None:
    catalog = server.catalog(f"faults-{fault}")
    catalog.create_database("db", True)
    for first in range(FIRST, LAST, STEP):
        name = f"db.t{first}"
        catalog.create_table(name, Schema.from_pyarrow_schema(COLUMNS), False)
        table, session = catalog.get_table(name), CommitSession()

        def commit(identifier: int, table: Any = table, session: CommitSession | None = session) -> CommitReport:
            messages = write(table, [(identifier, 0)], "query", False)
            return commit_once(CommitRequest(PaimonTable(table), "query", identifier, messages), session)

        for identifier in range(3):
            commit(identifier)
        messages = write(table, [(3, 0)], "query", False)
        with server.failing(f"/t{first}/", *[None] * first, fault) as waiting:
            try:
                commit_once(CommitRequest(PaimonTable(table), "query", 3, messages), session)
            except PaimonStreamError:
                assert fault == 403
            left = len(waiting)
        commit(3, catalog.get_table(name), None)
        data = batch_table(catalog.get_table(name))
        assert sorted(data["id"].to_pylist()) == [0, 1, 2, 3]
        if left:
            break
    assert 5 < first < LAST - STEP
