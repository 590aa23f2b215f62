"""Overwrites may move rows to other slots: no member reads past one before all have reached it."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import stream_read_builder
from support.groups.members import FOR_EVER, Member, group, keys, waits_before, write
from support.tables.handles import write_with
from support.tables.streamed_table import Table
from support.tables.written_tables import key_value_table, rows
from support.waits import until

pytestmark = pytest.mark.slow

LATER = range(1000, 1040)


def overwrite(table: Table, *keys: int) -> None:
    write_with(table.writer("other").with_overwrite(), rows(*keys))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return key_value_table(tmp_path, bucket="2")


@pytest.mark.parametrize("ends", ["confirms", "leaves"])
def test_no_member_reads_past_an_overwrite_before_all_have_reached_it(table: Table, ends: str) -> None:
    write(table, *range(40))
    with group(table, commit="manual").open_sync() as slow:
        first = next(slow)
        first.commit()
        quick = Member(lambda **calls: group(table, **calls))
        quick.wait(lambda member: len(member.slots) == 1)
        write(table, *range(100, 140))
        held = next(slow)
        quick.wait(lambda member: len(member.keys) + held.num_rows == 40)
        seen = len(quick.keys)
        # Half of the keys change their buckets.
        table.catalog.alter_table(table.name, [SchemaChange.set_option("bucket", "4")], False)
        overwrite(table, *range(500, 540))
        write(table, *LATER)
        until(lambda: 3 in waits_before(table) or len(quick.keys) > seen)
        assert len(quick.keys) == seen
        if ends == "confirms":
            held.commit()
            later = keys(next(slow))
            quick.wait(lambda member: len(member.keys) + len(later) == seen + 40)
            assert set(later) | set(quick.keys[seen:]) == set(LATER)
        else:
            slow.close()
            # What it has not confirmed comes first, in the order of the slot.
            quick.wait(lambda member: len(member.keys) == seen + held.num_rows + 40)
            assert set(quick.keys[seen : seen + held.num_rows]) == set(keys(held))
            assert set(quick.keys[seen + held.num_rows :]) == set(LATER)
    quick.end()


def test_a_member_that_joins_after_the_buckets_were_changed_gets_slots_of_the_group(table: Table) -> None:
    write(table, *range(40))
    older = Member(lambda **calls: group(table, **calls))
    older.wait(lambda member: len(member.keys) == 40)
    table.catalog.alter_table(table.name, [SchemaChange.set_option("bucket", "4")], False)
    overwrite(table, *range(500, 540))
    newer = Member(lambda **calls: group(table, **calls))
    newer.wait(lambda member: len(member.slots) == 1)
    write(table, *LATER)
    for member in (older, newer):
        member.wait(lambda member: bool(set(member.keys) & set(LATER)))
    until(lambda: len(older.keys) + len(newer.keys) == 80)
    assert sorted(older.keys + newer.keys) == [*range(40), *LATER]
    newer.end()
    older.end()


def test_a_reader_of_slots_of_files_does_not_wait(tmp_path: Path) -> None:
    table = key_value_table(tmp_path, keyed=False)
    write(table, *range(10))
    builder: Any = stream_read_builder(table.handle()).with_poll_interval_ms(20).new_group("etl", commit="manual")
    with builder.open_sync() as stream:
        next(stream)
        overwrite(table, *range(500, 510))
        write(table, *LATER)
        assert set(keys(next(stream))) == set(LATER)
    assert not waits_before(table)


def test_a_member_that_asks_for_more_without_committing_logs_what_the_group_waits_for(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    write(table, *range(40))
    found: list[int] = []
    with group(table, commit="manual").open_sync() as stream:
        batch = next(stream)
        overwrite(table, *range(500, 540))
        write(table, *LATER)
        following = Thread(target=lambda: found.extend(keys(next(stream))))
        following.start()
        until(lambda: "has not committed the last ones" in caplog.text)
        assert not found
        batch.commit()
        following.join(FOR_EVER)
    assert sorted(found) == list(LATER)
    assert caplog.text.count("waits before the overwrite in snapshot 2") == 1
