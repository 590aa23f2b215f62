"""Keys that a REST catalog lends run out: who plans, and the executors, ask for new ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.catalog.rest import rest_token_file_io

from support.spark.driver import Driver
from support.stores.rest_server import HOUR, RestServer
from support.stores.s3_server import S3Server
from support.tables.handles import create_table
from support.tables.orders import write

pytestmark = pytest.mark.server

COLUMNS = pa.schema([("k", pa.int64())])


class _Clock:
    """Stands in for the module `time` where tokens are held against the time."""

    def __init__(self) -> None:
        self.ahead_millis = 0

    def time(self) -> float:
        """Seconds, some of them still to come."""
        return time.time() + self.ahead_millis / 1000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    found = _Clock()
    monkeypatch.setattr(rest_token_file_io, "time", found)
    monkeypatch.setattr(rest_token_file_io.RESTTokenFileIO, "_TOKEN_CACHE", {})
    return found


@pytest.fixture
def table(server: S3Server, tmp_path: Path) -> Iterator[Any]:
    """A table with a row, written with keys of its own."""
    catalog = server.catalog(tmp_path.name)
    catalog.create_database("db", True)
    found = create_table(catalog, "t", COLUMNS)
    write(found, [{"k": 1}], COLUMNS)
    yield found
    server.keys = None


def test_lent_keys_that_have_run_out_are_asked_for_again(
    server: S3Server, table: Any, clock: _Clock, fast: bool
) -> None:
    rest = RestServer(server, table, lambda: int(clock.time() * 1000))
    try:
        driver = Driver({**rest.options, "table": "db.t"})
        start, end = driver.first()
        assert driver.rows(start, end) == [(1,)]
        first = rest.lent
        assert first >= 1
        write(table, [{"k": 2}], COLUMNS)
        clock.ahead_millis += 3 * HOUR
        rest.revoke()
        later = driver.latest(end)
        assert driver.rows(end, later) == [(2,)]
        assert rest.lent > first
    finally:
        rest.stop()
