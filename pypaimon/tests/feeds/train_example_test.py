"""The example that trains on what is new: each run learns the rows that came since, also after one that was killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import Schema

from pypaimon.streaming import stream_read_builder
from support.repository import load_example
from support.tables.handles import catalog_with_database, write_by_stream

pytestmark = pytest.mark.torch

COLUMNS = pa.schema([("x", pa.float32()), ("y", pa.float32())])


@pytest.fixture
def example() -> Any:
    return load_example("train_on_new_rows")


def test_each_run_learns_what_is_new(example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = catalog_with_database(tmp_path / "w")
    catalog.create_table("db.points", Schema.from_pyarrow_schema(COLUMNS), False)
    table, checkpoint = catalog.get_table("db.points"), tmp_path / "model.pt"

    def commit() -> None:
        x = [number % 100 / 50 - 1 for number in range(3200)]
        write_by_stream(table, pa.table([x, [3 * value + 1 for value in x]], schema=COLUMNS))

    commit()
    assert example.train(stream_read_builder(table), checkpoint, workers=0).rows == 3200
    commit()
    learned = example.Training.learn

    def fails_at_last(training: Any, batch: Any) -> None:
        if training.rows >= 3200 + 64 * 45:
            raise KeyboardInterrupt
        learned(training, batch)

    monkeypatch.setattr(example.Training, "learn", fails_at_last)
    with pytest.raises(KeyboardInterrupt):
        example.train(stream_read_builder(table), checkpoint, workers=0)
    assert example.Training(checkpoint).rows == 3200 + 64 * 40
    monkeypatch.setattr(example.Training, "learn", learned)
    commit()
    training = example.train(stream_read_builder(table), checkpoint, workers=0)
    assert training.rows == 3 * 3200
    weight, bias = (value.item() for value in training.model.parameters())
    assert (weight, bias) == pytest.approx((3, 1), abs=0.1)
    assert example.train(stream_read_builder(table), checkpoint, workers=0).rows == 3 * 3200
