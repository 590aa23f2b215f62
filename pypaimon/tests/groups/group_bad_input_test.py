"""Groups that meet other groups, readers and shards of the same id, and damaged files."""

from __future__ import annotations

from copy import copy
from pathlib import Path

import pyarrow as pa
import pytest
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import (
    ConsumerConflictError,
    CorruptTableError,
    StreamConfigError,
    StreamReadBuilder,
    list_consumers,
    stream_read_builder,
)
from pypaimon.streaming.consumers.consumer_manager import Consumer, consumers_of
from pypaimon.streaming.errors import AssignmentLostError
from pypaimon.streaming.groups.group_settings import settings_text
from pypaimon.streaming.groups.group_stream import GroupStreamBuilder
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.spec.spec_builder import resolved
from pypaimon.streaming.testing import SmallTable
from support.docs.cli_runs import Program
from support.groups.members import BUCKETS, SESSION, Member, group, keys, write
from support.stores.s3_server import S3Server
from support.tables.streamed_table import Table
from support.tables.written_tables import key_value_table

pytestmark = pytest.mark.server


def alone(table: Table) -> StreamReadBuilder:
    return stream_read_builder(table.handle()).with_consumer_id("etl").with_poll_interval_ms(20)


def bounded(table: Table, group_id: str = "etl") -> list[int]:
    builder = stream_read_builder(table.handle()).with_poll_interval_ms(20).with_end(latest=True)
    with builder.new_group(group_id, session_timeout=SESSION).open_sync() as stream:
        return sorted(key for batch in stream for key in keys(batch))


def test_two_groups_do_not_affect_each_other(written: Table) -> None:
    with group(written).open_sync() as first:
        assert sorted(keys(next(first))) == list(range(40))
        assert bounded(written, "other") == list(range(40))
        write(written, 50)
        assert keys(next(first)) == [50]
    assert bounded(written, "other") == [50]


def test_a_reader_of_its_id_takes_over_and_the_living_group_ends(written: Table) -> None:
    with group(written).open_sync() as shared:
        first = next(shared)
        with alone(written).open_sync() as stream:
            assert sorted(keys(next(stream))) == sorted(keys(first)) == list(range(40))
            with pytest.raises(ConsumerConflictError, match="pin"):
                next(shared)
            write(written, 50)
            assert keys(next(stream)) == [50]
    assert [info.name.text for info in list_consumers(written.handle()) if info.consumer_id == "etl"] == ["etl"]


def test_shards_become_a_group_and_shards_again(written: Table) -> None:
    """A group begins where all shards have confirmed. What one of them had confirmed in addition is read again."""

    def shard(index: int) -> list[int]:
        with alone(written).with_shard(index, 2).with_end(latest=True).open_sync() as stream:
            return [key for batch in stream for key in keys(batch)]

    assert sorted(shard(0) + shard(1)) == list(range(40))
    write(written, *range(50, 60))
    assert 0 < len(shard(0)) < 10
    assert bounded(written) == list(range(50, 60))
    write(written, *range(60, 70))
    assert sorted(shard(0) + shard(1)) == list(range(60, 70))


def test_a_group_of_an_id_at_0_begins_at_the_earliest_snapshot(written: Table) -> None:
    manager = consumers_of(TableDirectory.of(written.handle()))
    for first in (1, 2):
        write(written, 50)
        written.expire(first + 1)
        # The first time of a reader without a group, the second time of the group itself.
        manager.reset_consumer("etl", Consumer(0))
        assert bounded(written) == [50]


@pytest.mark.parametrize("which", ["state", "member"])
def test_a_damaged_file_is_named(written: Table, which: str) -> None:
    with group(written).open_sync() as stream:
        next(stream)
    home = written.path / "consumer" / "group-etl" / "1"
    path = max(home.glob(f"{which}-*"))
    path.write_bytes(b"{")
    with group(written).open_sync() as stream, pytest.raises(CorruptTableError, match=path.name):
        next(stream)


def test_a_damaged_record_does_not_keep_a_group_from_being_deleted(
    written: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with group(written).open_sync() as stream:
        next(stream)
    max((written.path / "consumer" / "group-etl" / "1").glob("member-*")).write_bytes(b"{")
    program = Program(tmp_path, capsys)
    refused = program("consumers", "delete", written.name, "etl", "--yes")
    assert refused.code == 1 and "--force skips the check" in refused.err
    assert program("consumers", "delete", written.name, "etl", "--yes", "--force").code == 0


def test_late_writes_of_a_fenced_member_do_not_count(server: S3Server, tmp_path: Path) -> None:
    """The heartbeats of a member hang until another one has its slots: neither they nor its commits are stored."""
    table = key_value_table(tmp_path, "late", catalog=server.catalog("late"), bucket=str(BUCKETS))
    write(table, *range(40))
    slow, lost = copy(table), list[int]()
    slow.catalog = server.catalog("late", **{"s3.access-key": "slow"})
    with group(slow, commit="manual", on_lost=lost.extend).open_sync() as late:
        batch = next(late)
        assert sorted(keys(batch)) == list(range(40))
        with server.failing("/member-", *["hang"] * 1000, method="PUT", key="slow"):
            other = Member(lambda **calls: group(table, **calls))
            other.wait(lambda member: len(member.keys) == 40)
            assert server.hanging.is_set() and len(other.slots) == BUCKETS
        with pytest.raises(AssignmentLostError):
            batch.commit()
        # It has slots again: otherwise the other member may read all that is written now.
        other.wait(lambda member: len(member.slots) < BUCKETS)
        write(table, *range(50, 90))
        own = keys(next(late))
        other.wait(lambda member: len(member.keys) + len(own) == 80)
        other.end()
    assert sorted(lost) == list(range(BUCKETS))
    assert sorted(own + other.keys) == [*range(40), *range(50, 90)]


def test_a_filter_on_another_column_of_the_same_name_is_another_one(tmp_path: Path) -> None:
    columns = pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.string())])
    table = SmallTable(tmp_path, columns=columns, keys=())
    table.commit({"id": 1, "a": "x", "b": "y"}, {"id": 2, "a": "y", "b": "x"})

    def member(condition: str) -> GroupStreamBuilder:
        builder = table.builder().with_poll_interval_ms(20).with_filter(condition)
        return builder.new_group("etl", session_timeout=SESSION)

    before = table.builder().with_filter("a = 'x'")
    with member("a = 'x'").open_sync() as first:
        assert next(first).rows["id"].to_pylist() == [1]
        for old, new in (("a", "between"), ("b", "a"), ("between", "b")):
            table.alter(SchemaChange.rename_column(old, new))
        with (
            member("a = 'x'").open_sync() as other,
            pytest.raises(StreamConfigError, match="the group has other settings"),
        ):
            next(other)
    same = [settings_text(resolved(each)) for each in (before, table.builder().with_filter("b = 'x'"))]
    assert same[0] == same[1]
