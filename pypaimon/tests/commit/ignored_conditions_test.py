"""Stores that answer 200 to a condition and overwrite, or deny their own entity tags: found out, and no row is lost."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.common.options import Options
from pypaimon.filesystem.pyarrow_file_io import PyArrowFileIO

from pypaimon.streaming import (
    CorruptTableError,
    PaimonTarget,
    TableChangedError,
    compact,
    replicate,
    stream_read_builder,
    stream_write_builder,
)
from pypaimon.streaming.consumers.consumer_manager import Consumer, ConsumerManager
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from pypaimon.streaming.errors import CommitFailedError
from pypaimon.streaming.io.conditional_writes import ChangedFileError
from pypaimon.streaming.io.object_reads import SWITCH, ObjectReads
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support import programs
from support.stores.s3_server import BUCKET, S3Server, forget_clients
from support.tables.handles import write_with
from support.tables.written_tables import Table, key_value_table, rows

pytestmark = [pytest.mark.server, pytest.mark.slow]

ETL = ConsumerName("etl")
_WRITER = """
import json
import sys
import pyarrow as pa
from pypaimon import CatalogFactory
from pypaimon.streaming import stream_write_builder
from pypaimon.streaming.errors import CommitFailedError
table = CatalogFactory.create(json.loads(sys.argv[1])).get_table("db.t")
with stream_write_builder(table).with_commit_user("elsewhere").open_sync() as writer:
    writer.write(pa.table({"k": [1], "v": ["v1"]}))
    print(writer.commit().snapshot_id, flush=True)
    sys.stdin.readline()
    writer.write(pa.table({"k": [3], "v": ["v3"]}))
    try:
        writer.commit()
    except CommitFailedError as error:
        print(type(error).__name__, flush=True)
"""


@pytest.fixture
def overwriting(server: S3Server) -> Iterator[S3Server]:
    with server.behaving(heeds_conditions=False):
        yield server


def table_at(server: S3Server, tmp_path: Path, name: str = "t") -> Table:
    catalog = server.catalog(tmp_path.name)
    return key_value_table(tmp_path, name, keyed=False, catalog=catalog, **{"commit.min-retry-wait": "1 ms"})


def commit(table: Table, user: str, *keys: int) -> None:
    write_with(stream_write_builder(table.handle()).with_commit_user(user), rows(*keys))


def keys_of(table: Table) -> list[int]:
    return [key for key, _ in table.rows()]


def copied(table: Table, source: Table) -> None:
    target = PaimonTarget(table.handle(), shared=True, commit_user="copy")
    replicate(stream_read_builder(source.handle()).with_end(latest=True), target)


def written_by_spark(table: Table, server: S3Server, tmp_path: Path) -> None:
    """A batch write of Spark's sink, without Spark."""
    pytest.importorskip("pyspark", reason="Spark's tests run where pyspark is installed")
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    from pypaimon.spark.write.sink import Sink

    data = rows(7)
    kinds = {pa.string(): StringType(), pa.int64(): LongType()}
    columns = StructType([StructField(field.name, kinds[field.type]) for field in data.schema])
    options = {"warehouse": f"s3://{BUCKET}/{tmp_path.name}", **server.options(), "table": f"db.{table.path.name}"}
    sink = Sink.of(options, columns, False, streaming=False)
    sink.commit_batch([sink.write(iter(data.to_batches()), None)])


# A store that ignores conditions


@pytest.mark.parametrize("who", ["writer", "compactor", "copy", "sink"])
def test_a_program_that_finds_another_one_while_it_commits_ends(
    overwriting: S3Server, tmp_path: Path, who: str
) -> None:
    table, source = table_at(overwriting, tmp_path), table_at(overwriting, tmp_path, "source")
    commit(source, "writer", 7)
    for key in range(3):
        commit(table, "writer", key)
    run: Callable[[], Any] = {
        "writer": lambda: commit(table, "second", 7),
        "compactor": lambda: compact(table.handle(), full=True),
        "copy": lambda: copied(table, source),
        "sink": lambda: written_by_spark(table, overwriting, tmp_path),
    }[who]

    def another_one() -> None:
        commit(table, "other", 3)
        overwriting.go_on.set()

    with overwriting.failing("/t/manifest/", "hang", method="PUT", on_hang=another_one) as left:
        found = r"'other' has committed snapshot 4 .*\(it overwrites an existing file"
        with pytest.raises(CommitFailedError, match=found) as caught:
            run()
        assert not left
    assert not caught.value.retriable and "its files are deleted" in str(caught.value)
    assert "may be repeated" not in str(caught.value)
    assert keys_of(table) == [0, 1, 2, 3]


def test_two_writers_that_are_open_at_the_same_time(overwriting: S3Server, tmp_path: Path) -> None:
    table = table_at(overwriting, tmp_path)
    one, two = (stream_write_builder(table.handle()).with_commit_user(user) for user in ("one", "two"))
    with one.open_sync() as first, two.open_sync() as second:
        first.write(rows(1))
        first.commit()
        second.write(rows(2))
        second.commit()
        first.write(rows(3))
        with pytest.raises(CommitFailedError, match="'two' has committed snapshot 2"):
            first.commit()
        second.write(rows(4))
        second.commit()
    assert keys_of(table) == [1, 2, 4]


def test_two_processes_find_each_other(overwriting: S3Server, tmp_path: Path) -> None:
    table = table_at(overwriting, tmp_path)
    options = {"warehouse": f"s3://{BUCKET}/{tmp_path.name}", **overwriting.options()}
    command = [sys.executable, "-c", _WRITER, json.dumps(options)]
    with programs.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None and other.stdout is not None
        assert other.stdout.readline() == "1\n"
        commit(table, "here", 2)
        assert other.communicate("commit\n", timeout=120)[0] == "UnsafeCommitError\n"
    assert keys_of(table) == [1, 2]


def test_a_commit_that_was_replaced_while_it_was_written_is_not_reported(overwriting: S3Server, tmp_path: Path) -> None:
    """Both found no snapshot of that id; the other one writes it last, before the first one looks again."""
    table, other = table_at(overwriting, tmp_path), table_at(overwriting, tmp_path, "other")
    for key in range(2):
        commit(other, "other", key)
    text = TableDirectory.of(other.handle()).store.read(f"{other.handle().table_path}/snapshot/snapshot-2")

    def replaced() -> None:
        overwriting.put(f"{tmp_path.name}/db.db/t/snapshot/snapshot-2", text)
        overwriting.go_on.set()

    with stream_write_builder(table.handle()).with_commit_user("writer").open_sync() as opened:
        opened.write(rows(1))
        opened.commit()
        opened.write(rows(2))
        # It looks for the next snapshot when it publishes, and for its own when that is written.
        faults = [None, "hang"]
        with overwriting.failing("/t/snapshot/snapshot-2", *faults, method="GET", on_hang=replaced) as left:
            with pytest.raises(CommitFailedError, match="'other' has committed snapshot 2"):
                opened.commit()
            assert not left


def test_a_last_commit_that_was_replaced_is_found_when_the_writer_is_closed(
    overwriting: S3Server, tmp_path: Path
) -> None:
    table = table_at(overwriting, tmp_path)
    fast = stream_write_builder(table.handle()).with_commit_user("fast")
    with pytest.raises(TableChangedError, match="another program did that"), fast.open_sync() as opened:
        opened.write(rows(1))

        def first() -> None:
            opened.commit()
            overwriting.go_on.set()

        with overwriting.failing("/t/snapshot/snapshot-1", "hang", method="PUT", on_hang=first) as left:
            commit(table, "slow", 2)
            assert not left
    assert keys_of(table) == [2]


def test_a_consumer_is_saved_and_taken_over(overwriting: S3Server, tmp_path: Path) -> None:
    """As in any store that does not compare; see `takeover_test.py`."""
    handle = table_at(overwriting, tmp_path).handle()
    manager = ConsumerManager(handle.file_io, handle.table_path)
    manager.write(ETL, Consumer(1))
    found = manager.look(ETL)
    assert found is not None
    manager.replace(ETL, Consumer(2), found[1])
    assert manager.consumers() == {"etl": 2}


def test_a_bucket_is_probed_once(server: S3Server, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    forget_clients()
    with server.asked() as asked:
        for name in ("one", "two"):
            table = table_at(server, tmp_path, name)
            for key in range(2):
                commit(table, "writer", key)
            handle = table.handle()
            store = TableDirectory.of(handle).store
            assert store.create_exclusive(f"{handle.table_path}/consumer/group", name.encode())
            ConsumerManager(handle.file_io, handle.table_path).write(ETL, Consumer(1))
            compact(handle, full=True)
    assert sum("/.probe-" in path for _, path in asked) == 3
    assert not [name for name in store.list_names(f"{handle.table_path}/snapshot") if "probe" in name]
    with server.behaving(heeds_conditions=False), caplog.at_level(logging.WARNING):
        commit(table, "writer", 8)
        commit(table, "writer", 9)
    lines = [record.getMessage() for record in caplog.records if "ignores conditions on writes" in record.getMessage()]
    assert len(lines) == 1 and "one program at a time" in lines[0]


def test_a_probe_that_fails_leaves_nothing_of_the_commit(server: S3Server, tmp_path: Path) -> None:
    table = table_at(server, tmp_path)
    forget_clients()
    with stream_write_builder(table.handle()).with_commit_user("writer").open_sync() as opened:
        opened.write(rows(1))
        with server.failing("/.probe-", 403, method="PUT"), pytest.raises(CorruptTableError, match="permissions"):
            opened.commit()
    handle = table.handle()
    assert TableDirectory.of(handle).store.list_names(f"{handle.table_path}/bucket-0") == []
    commit(table, "writer", 1)
    assert keys_of(table) == [1]


@pytest.mark.parametrize("fault", [412, 501])
def test_a_first_answer_that_cannot_be_is_asked_for_again(server: S3Server, tmp_path: Path, fault: int) -> None:
    table = table_at(server, tmp_path)
    forget_clients()
    with server.failing("/.probe-", fault, method="PUT") as left:
        commit(table, "writer", 1)
        assert not left
    handle = table.handle()
    assert TableDirectory.of(handle).store.objects.known_to_create(f"{handle.table_path}/snapshot/snapshot-2")


@pytest.mark.parametrize("fault", [405, 501])
def test_a_store_that_compares_and_refuses_once_replaces_no_commit(
    server: S3Server, tmp_path: Path, fault: int
) -> None:
    """Without the condition the second attempt would replace the snapshot of the other program."""
    table = table_at(server, tmp_path)
    commit(table, "writer", 0)

    def another_one() -> None:
        commit(table, "other", 1)
        server.go_on.set()

    with server.failing("/snapshot/snapshot-2", fault, "hang", method="PUT", on_hang=another_one) as left:
        commit(table, "writer", 2)
        assert not left
    assert keys_of(table) == [0, 1, 2]


def test_a_store_that_does_not_know_conditions_any_more_gets_no_commit(server: S3Server, tmp_path: Path) -> None:
    table = key_value_table(tmp_path, keyed=False, catalog=server.catalog(tmp_path.name), **{"commit.max-retries": "0"})
    commit(table, "writer", 0)
    with (
        server.failing("/snapshot/snapshot-2", *[501] * 9, method="PUT"),
        pytest.raises(CommitFailedError, match="start the program again"),
    ):
        commit(table, "writer", 1)
    assert keys_of(table) == [0]
    commit(table, "writer", 1)
    assert keys_of(table) == [0, 1]


# A store that denies its own entity tags


def test_a_store_that_knows_its_tags_only_without_quotes_compares(server: S3Server, tmp_path: Path) -> None:
    """Ceph's gateway 16.2: consumers save, writers commit, and a late save is still refused."""
    with server.behaving(bare_tags=True):
        table = table_at(server, tmp_path)
        handle = table.handle()
        manager = ConsumerManager(handle.file_io, handle.table_path)
        manager.write(ETL, Consumer(1))
        found = manager.look(ETL)
        assert found is not None
        with server.asked() as asked:
            manager.replace(ETL, Consumer(2), found[1])
        assert [method for method, path in asked if "/consumer-etl" in path] == ["PUT", "GET", "PUT"]
        later = manager.look(ETL)
        assert later is not None
        with server.asked() as asked:
            manager.replace(ETL, Consumer(3), later[1])
        assert [method for method, _ in asked] == ["PUT"]
        for late in (found, later):
            with pytest.raises(ChangedFileError):
                manager.replace(ETL, Consumer(9), late[1])
        assert manager.consumers() == {"etl": 3}
        with stream_write_builder(handle).with_commit_user("writer").open_sync() as opened:
            for key in range(5):
                opened.write(rows(key))
                assert opened.commit().snapshot_id == key + 1
        assert keys_of(table) == list(range(5))


@pytest.mark.parametrize("denials", [1, 2, 3])
def test_a_refusal_of_what_is_there_is_not_believed(server: S3Server, tmp_path: Path, denials: int) -> None:
    handle = table_at(server, tmp_path).handle()
    manager = ConsumerManager(handle.file_io, handle.table_path)
    manager.write(ETL, Consumer(1))
    found = manager.look(ETL)
    assert found is not None
    with server.failing("/consumer-etl", *[412] * denials, method="PUT") as left:
        manager.replace(ETL, Consumer(2), found[1])
        assert not left
    assert manager.consumers() == {"etl": 2}
    with pytest.raises(ChangedFileError):
        manager.replace(ETL, Consumer(3), found[1])


# Advice


def test_the_extra_is_advised_only_where_it_helps(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    google = PyArrowFileIO("gs://lake/wh", Options({"gcs.access-token": "none"}))
    assert "no client here" in ObjectReads(google, 60).why_not_created("gs://lake/wh/file")
    amazon = PyArrowFileIO("s3://lake/wh", Options(server.options()))
    monkeypatch.setenv(SWITCH, "off")
    assert "turns the extra 'fast' off" in ObjectReads(amazon, 60).why_not_created("s3://lake/wh/file")
