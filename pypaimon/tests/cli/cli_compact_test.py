"""`paimon-stream compact`: its output, its options, and what it refuses."""

from __future__ import annotations

import datetime
import json
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import stream_write_builder
from support.docs.cli_runs import Program
from support.tables.evolving_table import EvolvingTable
from support.tables.handles import batch_table, catalog_with_database, create_table

pytestmark = pytest.mark.slow

COLUMNS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.date32(), nullable=False), ("v", pa.int64())]
)


@pytest.fixture
def table(tmp_path: Path) -> Any:
    catalog = catalog_with_database(tmp_path)
    table = create_table(
        catalog,
        "t",
        COLUMNS,
        partition_keys=["day"],
        primary_keys=["day", "id"],
        options={"bucket": "1", "write-only": "true"},
    )
    days = [datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)]
    with stream_write_builder(table).with_commit_user("load").open_sync() as writer:
        for commit in range(5):
            writer.write(pa.table({"id": [1, 1], "day": days, "v": [commit, commit]}, schema=COLUMNS))
            writer.commit()
    return table


def test_what_is_due_is_compacted_and_reported(program: Program, table: Any) -> None:
    dry = program("compact", "db.t", "--dry-run")
    assert dry.code == 0
    assert dry.lines[0].split() == ["partition", "bucket", "files", "size", "records"]
    assert dry.lines[1].split()[:3] == ["day=2026-01-01", "0", "5"]
    assert "10 files" in dry.lines[-1] and dry.lines[-1].endswith("would be compacted")
    done = program("compact", "db.t")
    assert done.code == 0
    assert done.lines[2].split()[0] == "day=2026-01-02"
    assert "10 files" in done.lines[-1] and "became 2 files" in done.lines[-1]
    assert program("compact", "db.t").lines == ["db.t: nothing is due"]


def test_files_of_columns_become_one(program: Program, tmp_path: Path) -> None:
    evolving = EvolvingTable(tmp_path, compaction__min__file_num="3")
    evolving.numbered(4)
    evolving.update({1: {"a": "x"}})
    evolving.update({2: {"b": 5}})
    done = program("compact", "db.evolving")
    assert done.code == 0 and "became 1 file" in done.lines[-1]
    evolving.check()


def test_partitions_and_json(program: Program, table: Any) -> None:
    (record,) = program("compact", "db.t", "--partition", "day=2026-01-02", "--json").records
    assert record["snapshots"] == [6] and record["planned_at"] == 5
    (bucket,) = record["compacted"]
    assert bucket["partition"] == {"day": "2026-01-02"}
    assert (bucket["before"]["files"], bucket["before"]["records"]) == (5, 5)
    assert (bucket["after"]["files"], bucket["after"]["records"]) == (1, 1)
    assert program("compact", "db.t", "--full", "--partition", "day=2026-01-02").lines == ["db.t: nothing is due"]


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        ("day=soon", "invalid value 'soon' of partition column 'day' (DATE NOT NULL)"),
        ("hour=3", "'hour' is not a partition column; the partition columns are day"),
        ("day", "="),
    ],
)
def test_invalid_partitions_are_refused(program: Program, table: Any, partition: str, message: str) -> None:
    outcome = program("compact", "db.t", "--partition", partition)
    assert outcome.code == 2
    assert message in outcome.err


def test_following_compacts_until_it_is_asked_to_end(program: Program, table: Any) -> None:
    running = program.start("compact", "db.t", "--follow", "--every", "0.01", "--json")
    assert running.stdout is not None
    record = json.loads(running.stdout.readline())
    assert sum(bucket["before"]["files"] for bucket in record["compacted"]) == 10
    running.send_signal(signal.SIGTERM)
    _, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (0, "")
    assert program("compact", "db.t").lines == ["db.t: nothing is due"]
    assert program("compact", "db.t", "--follow", "--dry-run").code == 2


def test_rows_are_sorted_by_columns(program: Program, tmp_path: Path) -> None:
    appended = create_table(catalog_with_database(tmp_path), "sorted", COLUMNS)
    day = datetime.date(2026, 1, 1)
    rows = pa.table({"id": [2, 1, 2, 1], "day": [day] * 4, "v": [1, 2, 0, 0]}, schema=COLUMNS)
    with stream_write_builder(appended).with_commit_user("load").open_sync() as writer:
        writer.write(rows)
        writer.commit()
    arguments = ("compact", "db.sorted", "--order-by", "id, v", "--strategy", "order")
    assert "would be compacted" in program(*arguments, "--dry-run").lines[-1]
    assert "1 file" in program(*arguments).lines[-1]
    assert batch_table(appended).select(["id", "v"]).to_pylist() == [
        {"id": number, "v": value} for number, value in ((1, 0), (1, 2), (2, 0), (2, 1))
    ]
    for wrong, message in (
        (("--order-by", "w"), "order_by: db.sorted has no column 'w'"),
        (("--strategy", "zorder"), "give them as"),
        (("--order-by", "v", "--follow"), "contradict each other"),
    ):
        outcome = program("compact", "db.sorted", *wrong)
        assert outcome.code == 2
        assert message in outcome.err


def test_partitions_by_a_condition_and_by_age(program: Program, table: Any) -> None:
    def due(*arguments: str) -> list[str]:
        (record,) = program("compact", "db.t", "--dry-run", "--json", *arguments).records
        return [bucket["partition"]["day"] for bucket in record["compacted"]]

    days = ["2026-01-01", "2026-01-02"]
    assert due("--where", "day > '2026-01-01'") == days[1:]
    assert due("--where", "day <= '2026-01-01' or day is null") == days[:1]
    assert due("--idle", "0s") == days
    assert due("--idle", "1d") == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--where", "v = 3"), "'v'"),
        (("--where", "day >"), "expected"),
        (("--idle", "soon"), "90s, 5m, 2h, 1d"),
        (("--every", "0"), "goes with --follow"),
    ],
)
def test_invalid_conditions_are_refused(program: Program, table: Any, arguments: tuple[str, str], message: str) -> None:
    outcome = program("compact", "db.t", *arguments)
    assert outcome.code == 2
    assert message in outcome.err
