"""A directory of Parquet files holds what an append table holds: one file for each plan, exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import ParquetTarget, StreamConfigError, replicate, stream_read_builder
from pypaimon.streaming.errors import TargetError
from pypaimon.streaming.testing import SmallTable, check_target
from support.samples import sample_seed
from support.tables.handles import create_table, write_by_stream

pytestmark = pytest.mark.slow


def rows_of(directory: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(directory.glob("plan-*.parquet")) for row in pq.read_table(path).to_pylist()]


@pytest.fixture
def source(tmp_path: Path) -> SmallTable:
    """An append table of two commits."""
    table = SmallTable(tmp_path / "w", keys=())
    for number in range(2):
        table.commit({"id": number, "name": f"n{number}"})
    return table


@pytest.mark.usefixtures("few_kills")
def test_it_is_right(tmp_path: Path) -> None:
    check_target(
        lambda name: ParquetTarget(tmp_path / name),
        lambda name: rows_of(tmp_path / name),
        keys=(),
        schema_changes=False,
        histories=1,
        seed=sample_seed(),
    )


def test_a_plan_is_a_file_and_what_else_is_there_stays(source: SmallTable, tmp_path: Path) -> None:
    directory = tmp_path / "copy"
    directory.mkdir()
    directory.joinpath("README").write_text("mine")
    for number in range(2, 4):
        replicate(source.builder(), ParquetTarget(directory))
        source.commit({"id": number})
    position = replicate(source.builder(), ParquetTarget(directory))
    assert sorted(row["id"] for row in rows_of(directory)) == [0, 1, 2, 3]
    plans = [f"plan-{number:012}.parquet" for number in (1, 2, 3)]
    assert sorted(path.name for path in directory.iterdir()) == ["README", *plans]
    assert pq.read_metadata(directory / plans[-1]).metadata[b"paimon.position"].decode() == position.to_json()


def test_a_column_is_added_and_one_that_is_renamed_is_refused(source: SmallTable, tmp_path: Path) -> None:
    directory = tmp_path / "copy"
    replicate(source.builder(), ParquetTarget(directory))
    source.alter(SchemaChange.add_column("more", AtomicType("STRING")))
    source.commit({"id": 2, "more": "m"})
    before = replicate(source.builder(), ParquetTarget(directory))
    assert rows_of(directory)[-1]["more"] == "m"
    source.alter(SchemaChange.rename_column("name", "title"))
    source.commit({"id": 3, "title": "t"})
    with pytest.raises(StreamConfigError, match=r"column 'name' .* is not what the files hold"):
        replicate(source.builder(), ParquetTarget(directory))
    assert ParquetTarget(directory).load_position() == before
    assert not list(directory.glob(".plan-*"))


def test_vectors_are_lists_of_which_some_are_null(warehouse: Any, tmp_path: Path) -> None:
    vector = pa.list_(pa.float32(), 2)
    schema = pa.schema([("v", vector), ("s", pa.struct([("v", vector)]))])
    rows = [{"v": [1.0, 2.0], "s": {"v": None}}, {"v": None, "s": None}, {"v": [3.0, 4.0], "s": {"v": [5.0, 6.0]}}]
    table = create_table(warehouse, "t", schema)
    write_by_stream(table, pa.Table.from_pylist(rows, schema=schema))
    replicate(stream_read_builder(table).with_end(latest=True), ParquetTarget(tmp_path / "copy"))
    assert rows_of(tmp_path / "copy") == rows


def test_a_file_that_is_damaged_and_one_of_others_are_reported(source: SmallTable, tmp_path: Path) -> None:
    directory = tmp_path / "copy"
    replicate(source.builder(), ParquetTarget(directory))
    (path,) = directory.glob("plan-*")
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(TargetError, match=r"continues where the table stands"):
        replicate(source.builder(), ParquetTarget(directory))
    path.write_bytes(whole)
    pq.write_table(pq.read_table(path).replace_schema_metadata(), directory / "plan-000000000002.parquet")
    with pytest.raises(StreamConfigError, match=r"plan-000000000002\.parquet was not written by ParquetTarget"):
        ParquetTarget(directory).load_position()


@pytest.mark.parametrize(
    ("directory", "text"),
    [
        ("s3://lake/events", r"s3://lake/events/.* only if there is none .*keys are not among the options.*'fast'"),
        ("nowhere://lake/events", r"Parquet files in nowhere://lake/events: "),
    ],
)
def test_a_store_that_cannot_be_used_is_refused_at_once(directory: str, text: str) -> None:
    with pytest.raises(StreamConfigError, match=text):
        ParquetTarget(directory)
