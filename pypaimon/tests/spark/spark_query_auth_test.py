"""Rules of a REST catalog for what may be seen of a table: executors ask for them, and keep to them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.catalog.rest import rest_token_file_io

from pypaimon.streaming import UnsupportedTableError
from support.spark.driver import Driver, batch_tasks
from support.stores.rest_server import RestServer
from support.stores.s3_server import S3Server
from support.tables.handles import create_table
from support.tables.orders import write
from support.tables.streamed_table import Table

pytestmark = pytest.mark.server

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])
SECRET = {"v": json.dumps({"name": "NULL"})}


def at_most(number: int) -> list[str]:
    field = {"name": "FIELD_REF", "fieldRef": {"index": 0, "name": "k", "type": "BIGINT"}}
    test = {"kind": "LEAF", "transform": field, "function": "LESS_OR_EQUAL", "literals": [number]}
    return [json.dumps(test)]


@pytest.fixture
def table(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A table with two rows."""
    monkeypatch.setattr(rest_token_file_io.RESTTokenFileIO, "_TOKEN_CACHE", {})
    catalog = server.catalog(tmp_path.name)
    catalog.create_database("db", True)
    found = create_table(catalog, "t", COLUMNS)
    write(found, [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}], COLUMNS)
    yield found
    server.keys = None


@pytest.fixture
def rest(server: S3Server, table: Any) -> Iterator[RestServer]:
    found = RestServer(server, table, lambda: int(time.time() * 1000))
    yield found
    found.stop()


def test_streams_and_batches_keep_to_the_rules_of_the_moment(rest: RestServer, table: Any) -> None:
    rest.rules = {"filter": at_most(1), "columnMasking": SECRET}
    options = {**rest.options, "table": "db.t"}
    driver = Driver(options)
    start, end = driver.first()
    assert driver.rows(start, end) == [(1, None)]
    rest.rules = {"filter": at_most(3), "columnMasking": {}}
    write(table, [{"k": 3, "v": "c"}, {"k": 4, "v": "d"}], COLUMNS)
    later = driver.latest(end)
    assert driver.rows(end, later) == [(3, "c")]
    batch = [tuple(row.values()) for task in batch_tasks(options) for each in task for row in each.to_pylist()]
    assert sorted(batch) == [(1, "a"), (2, "b"), (3, "c")]


def test_what_cannot_be_enforced_is_refused(rest: RestServer, table: Any) -> None:
    rest.rules = {"filter": [json.dumps({"kind": "NEW"})], "columnMasking": {}}
    driver = Driver({**rest.options, "table": "db.t"})
    start = driver.initial()
    with pytest.raises(UnsupportedTableError, match="NEW"):
        driver.rows(start, driver.latest(start))


def test_files_are_not_left_to_spark(rest: RestServer, table: Any) -> None:
    rest.rules = {"filter": [], "columnMasking": {}}
    driver = Driver({**rest.options, "table": "db.t", "mode": "files"})
    start = driver.initial()
    with pytest.raises(UnsupportedTableError, match=r"query-auth\.enabled"):
        driver.rows(start, driver.latest(start))


@pytest.mark.parametrize(("mode", "message"), [("rows", "not supported"), ("files", r"query-auth\.enabled")])
def test_a_catalog_that_has_no_rules_to_ask_for_is_refused(tmp_path: Path, mode: str, message: str) -> None:
    table = Table(tmp_path / "w", query_auth__enabled="true").commit_each([1])
    driver = Driver(table, mode=mode)
    start = driver.initial()
    with pytest.raises(UnsupportedTableError, match=message):
        driver.rows(start, driver.latest(start))
