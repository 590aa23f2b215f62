"""What Ray and PyTorch are handed is what a stream gives: they read with none of pypaimon's own readers."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from support.tables.streamed_table import Table, available


class Dataset:
    """As much of Ray's dataset as is used."""

    def __init__(self, rows: pa.Table, blocks: int = 1) -> None:
        self.rows = rows
        self.blocks = blocks

    def repartition(self, blocks: int) -> Dataset:
        return Dataset(self.rows, blocks)


@pytest.fixture
def _ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(data=SimpleNamespace(from_arrow=Dataset)))


@pytest.mark.usefixtures("_ray")
def test_ray_gets_the_rows_of_the_stream(tmp_path: Path) -> None:
    table = Table(tmp_path / "w", primary_key=True)
    table.commit([1, 2])
    table.commit([("-D", 1, "v1")])
    builder = table.builder().with_start("earliest")
    read = builder.new_read()
    with builder.new_streaming_scan() as scan:
        plans = available(scan)
    found: list[Any] = [read.to_ray(plan.splits(), concurrency=2, ray_remote_args={"num_cpus": 1}) for plan in plans]
    assert [each.rows for each in found] == [read.to_arrow(plan.splits()) for plan in plans]
    assert [row["_row_kind"] for row in found[1].rows.to_pylist()] == ["-D"]
    assert read.to_ray(plans[0].splits(), override_num_blocks=3).blocks == 3
    assert read.to_ray([]).rows.schema == read.schema


def test_pytorch_gets_the_columns_that_come_out(tmp_path: Path) -> None:
    table = Table(tmp_path / "w", primary_key=True).commit_each([1])
    read = table.builder().with_projection({"value": "v", "key": "k"}).new_read()
    assert read._output_arrow_schema().names == ["value", "key"]
    assert read.schema.names == ["_row_kind", "value", "key"]
