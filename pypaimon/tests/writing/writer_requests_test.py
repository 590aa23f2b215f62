"""What a commit of a writer that goes on asks of a store, and that it loses no check thereby."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import TableChangedError, stream_write_builder
from pypaimon.streaming.io.new_object import MOST_HELD
from pypaimon.streaming.io.object_reads import SWITCH
from support.stores.s3_server import S3Server
from support.tables.handles import batch_read, create_table

pytestmark = pytest.mark.server

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.binary())])


def created(server: S3Server, warehouse: str, keyed: bool) -> Any:
    catalog = server.catalog(warehouse)
    catalog.create_database("db", True)
    keys, options = (["id"], {"bucket": "1"}) if keyed else (None, {})
    return create_table(catalog, "t", COLUMNS, primary_keys=keys, options=options)


def row(number: int, value: bytes = b"") -> pa.Table:
    return pa.table({"id": [number], "v": [value]}, schema=COLUMNS)


def asked_of_the_seventh(server: S3Server, table: Any) -> Counter[tuple[str, str]]:
    """Methods and directories of what the seventh commit asks for."""
    with stream_write_builder(table).open_sync() as writer:
        for number in range(6):
            writer.write(row(number))
            writer.commit()
        with server.asked() as asked:
            writer.write(row(6))
            writer.commit()
    return Counter((method, path.replace("%2F", "/").split("/t/")[1].split("/")[0]) for method, path in asked)


def test_small_commits_cost_one_request_for_each_file_and_three_for_what_others_did(server: S3Server) -> None:
    for keyed, looks in ((False, 1), (True, 2)):
        asked = asked_of_the_seventh(server, created(server, f"fast-{keyed}", keyed))
        files = {("PUT", "bucket-0"): 1, ("PUT", "manifest"): 3, ("PUT", "snapshot"): 2}
        assert asked == {**files, ("GET", "schema"): 1, ("GET", "snapshot"): looks}


@pytest.mark.parametrize(("keyed", "heads"), [(False, 3), (True, 4)])
def test_without_the_extra_each_file_costs_three_requests(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, keyed: bool, heads: int
) -> None:
    monkeypatch.setenv(SWITCH, "off")
    asked = asked_of_the_seventh(server, created(server, f"plain-{keyed}", keyed))
    parts = {"bucket-0": 1, "manifest": 3, "snapshot": 2}
    assert {each: asked["PUT", each] for each in parts} == parts
    assert {each: asked["POST", each] for each in parts} == {each: 2 * count for each, count in parts.items()}
    # Its last snapshot and the next one after the manifests, and that once it is written; the newest schema.
    # With a primary key the snapshots are looked at once more.
    looks = {("GET", "schema"): 1, ("GET", "snapshot"): 1, ("HEAD", "snapshot"): heads}
    assert {each: count for each, count in asked.items() if each[0] in ("GET", "HEAD")} == looks


@pytest.mark.parametrize("switch", ["on", "off"])
def test_a_large_file_is_written_in_parts(server: S3Server, switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, switch)
    table = created(server, f"large-{switch}", keyed=False)
    value = bytes(range(256)) * (MOST_HELD // 256 + 1)
    with server.asked() as asked, stream_write_builder(table.copy({"file.compression": "none"})).open_sync() as writer:
        writer.write(row(1, value))
        writer.commit()
    assert sum(method == "POST" and "/bucket-0/" in path and "uploads" in path for method, path in asked) == 1
    assert batch_read(table) == row(1, value).to_pylist()


@pytest.mark.parametrize("keyed", [False, True])
def test_of_files_that_are_thrown_away_nothing_is_written(server: S3Server, keyed: bool) -> None:
    table = created(server, f"aborted-{keyed}", keyed)
    with stream_write_builder(table).open_sync() as writer:
        writer.write(row(1))
        with server.asked() as asked:
            writer.abort()
    assert not [path for method, path in asked if method in ("PUT", "POST")]


@pytest.mark.parametrize("others", [0, 2])
def test_a_table_that_was_recreated_takes_no_rows_of_the_writer_before(server: S3Server, others: int) -> None:
    """Nothing but the snapshot of its last commit tells it apart; also where as many are there again."""
    table = created(server, f"anew-{others}", keyed=False)
    catalog = server.catalog(f"anew-{others}")
    with stream_write_builder(table).open_sync() as writer:
        for number in range(2):
            writer.write(row(number))
            writer.commit()
        writer.write(row(2))
        catalog.drop_table("db.t", False)
        anew = created(server, f"anew-{others}", keyed=False)
        with stream_write_builder(anew).with_commit_user("other").open_sync() as other:
            for number in range(others):
                other.write(row(-number))
                other.commit()
        with pytest.raises(TableChangedError, match="dropped or recreated"):
            writer.commit()
    plan = anew.new_read_builder().new_scan().plan()
    assert sum(split.row_count for split in plan.splits()) == others
