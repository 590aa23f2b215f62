"""Partitions whose files are divided into several numbers of buckets: compaction leaves them, rescaling heals them."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import compact, table_files
from pypaimon.streaming.commit.idempotent_commit import commit_batch
from pypaimon.streaming.compaction import rescale
from pypaimon.streaming.compaction.compaction_options import with_buckets
from pypaimon.streaming.compaction.compactor import Compaction
from pypaimon.streaming.compaction.live_files import LiveEntries, live_buckets
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.paimon.write_internals import CommitMessage
from support.docs.cli_runs import Program
from support.tables.rescaled_tables import COLUMNS, altered, buckets_of, created, state, write

pytestmark = pytest.mark.slow

KINDS: list[dict[str, str]] = [
    {},
    {"deletion-vectors.enabled": "true"},
    {"merge-engine": "partial-update"},
    {"bucket-key": "id"},
]


def mixed(directory: Path, options: dict[str, str], second: range = range(20, 40)) -> Any:
    """Partition 0 has files of 2 and of 3 buckets, partition 1 of 2."""
    table = created(directory, options)
    write(table, 1, range(10))
    write(table, 2, range(10, 20))
    table = altered(table, directory, 3)
    unchecked(table, second)
    return table


def unchecked(table: Any, keys: range) -> None:
    """As programs write that do not check the number of buckets."""
    builder = table.new_batch_write_builder()
    data = pa.Table.from_pylist([{"id": key, "p": 0, "v": 9} for key in keys], COLUMNS)
    writer, committer = builder.new_write(), builder.new_commit()
    writer.write_arrow(data)
    committer.commit(writer.prepare_commit())


WRITTEN = [(p, key, 1 if key < 10 else 2) for p in (0, 1) for key in range(20)]
EXPECTED = sorted([*WRITTEN, *((0, key, 9) for key in range(20, 40))])


@pytest.mark.parametrize("options", KINDS)
def test_it_is_named_and_left_and_the_others_are_compacted(
    tmp_path: Path, options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    table = mixed(tmp_path, options)
    with caplog.at_level(logging.WARNING):
        compaction = Compaction(PaimonTable(table), full=True)
        reports = [compaction.run(), compaction.run()]
    assert {each.partition["p"] for each in reports[0].compacted} <= {1}
    for report in reports:
        assert [each.partition for each in report.skipped] == [{"p": 0}]
        assert "2 and 3 buckets" in report.skipped[0].reason and not report.conflicts
    assert sum("p=0 is left as it is" in each.getMessage() for each in caplog.records) == 1
    found = table_files(table)
    assert found.skipped == reports[0].skipped and found.not_compacted is None
    assert {each.partition["p"]: each.due is None for each in found.buckets} == {0: True, 1: False}


def test_a_compaction_that_goes_on_finds_what_it_has_left(tmp_path: Path) -> None:
    # This key is in the third bucket, so the others do not change any more.
    table = mixed(tmp_path, {}, range(20, 21))
    given = PaimonTable(table)
    compaction = Compaction(given, full=True)
    compaction.run()
    assert [each.partition for each in compaction.run().skipped] == [{"p": 0}]
    directory = given.new_directory()
    snapshot = directory.snapshots.get_latest_snapshot()
    assert snapshot is not None
    unwanted = [
        CommitMessage(
            each.partition, each.bucket, [], total_buckets=3, deleted_files=[file.replaced() for file in each.files]
        )
        for each in live_buckets(given, LiveEntries().look(directory, snapshot))
        if each.total_buckets == 3
    ]
    commit_batch(given, unwanted, overwrite=False)
    assert not compaction.run().skipped
    assert [(each.partition["p"], each.bucket) for each in compaction.run().compacted] == [(0, 0), (0, 1)]


@pytest.mark.parametrize("options", KINDS)
def test_rescaling_heals_it(tmp_path: Path, options: dict[str, str]) -> None:
    table = mixed(tmp_path, options)
    report = rescale(table, 3)
    assert not report.conflicts and not report.skipped and len(report.new_snapshot_ids) == 2
    assert buckets_of(table) == {0: {0, 1, 2}, 1: {0, 1, 2}}
    assert state(table) == EXPECTED
    assert compact(table, full=True).skipped == ()
    assert state(table) == EXPECTED


@pytest.mark.parametrize("options", [{}, {"merge-engine": "partial-update"}, {"record-level.expire-time": "1 d"}])
def test_a_key_with_rows_of_both_numbers_is_refused_and_nothing_changes(
    tmp_path: Path, options: dict[str, str]
) -> None:
    given = {**options, **({"record-level.time-field": "v"} if "record-level.expire-time" in options else {})}
    table = mixed(tmp_path, given, range(19, 40))
    before = {path for path in tmp_path.rglob("bucket-*/*") if "p=0" in str(path)}
    report = rescale(table, 3)
    assert [each.partition for each in report.skipped] == [{"p": 0}] and "INSERT OVERWRITE" in report.skipped[0].reason
    assert {path for path in tmp_path.rglob("bucket-*/*") if "p=0" in str(path)} == before
    assert buckets_of(table)[1] == {0, 1, 2}


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_changes_that_streams_have_not_received_are_not_lost_silently(tmp_path: Path, producer: str) -> None:
    report = rescale(mixed(tmp_path, {"changelog-producer": producer}), 3)
    assert [each.partition for each in report.skipped] == [{"p": 0}] and "streams" in report.skipped[0].reason
    assert {each.partition["p"] for each in report.compacted} == {1} and not report.conflicts


def test_the_other_partitions_of_a_postponed_table_are_distributed(tmp_path: Path) -> None:
    table = created(tmp_path, {"bucket": "-2", "postpone.default-bucket-num": "2"})
    write(table, 1, range(10))
    compact(table)
    unchecked(with_buckets(PaimonTable(table), 3).handle, range(20, 40))
    write(table, 2, range(10, 20))
    report = compact(table)
    assert [each.partition for each in report.skipped] == [{"p": 0}]
    assert {each.partition["p"] for each in report.compacted} == {1}
    assert [each.bucket for each in table_files(table).buckets if each.partition["p"] == 0].count(-2) == 1
    assert not rescale(table, 4).conflicts
    compact(table)
    assert state(table) == EXPECTED
    assert buckets_of(table) == {0: set(range(4)), 1: set(range(4))}


def test_the_commands_name_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mixed(tmp_path, {}, range(19, 40))
    program = Program(tmp_path, capsys)
    assert "; partition p=0: Its files are divided into 2 and 3 buckets" in program("compact", "d.t").out
    assert json.loads(program("compact", "d.t", "--json").out)["skipped"][0]["partition"] == {"p": 0}
    assert "a key has rows" in program("rescale", "d.t", "3").out
    assert "2 and 3 buckets" in program("files", "d.t").out
