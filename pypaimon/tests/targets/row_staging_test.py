"""The rows of a plan come out with the last one of each key, from memory and from a file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming.targets import row_staging
from pypaimon.streaming.targets.row_staging import IS_GONE, RowStaging
from support.samples import seeded

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.string())])


@pytest.mark.parametrize("in_memory", [0, 2000, 1 << 20])
@pytest.mark.parametrize("keeps_gone", [True, False])
def test_the_last_row_of_a_key_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: int, keeps_gone: bool
) -> None:
    monkeypatch.setattr(row_staging, "_IN_MEMORY", in_memory)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    chance = seeded(f"staged {in_memory}")
    for _ in range(20):
        staged, expected = RowStaging(SCHEMA, ["key"]), dict[int, str | None]()
        for number in range(chance.randint(1, 20)):
            keys = chance.sample(range(30), chance.randint(0, 20))
            cut = chance.randint(0, len(keys))
            values: dict[int, str | None] = {key: f"{number} {key}" for key in keys[:cut]}
            staged.add(rows_of(values), rows_of(dict.fromkeys(keys[cut:])))
            expected.update({**values, **dict.fromkeys(keys[cut:])})
        found: list[dict[str, Any]] = (staged.changes() if keeps_gone else staged.rows()).read_all().to_pylist()
        kept = {key: value for key, value in expected.items() if keeps_gone or value is not None}
        assert {row["key"]: row["value"] for row in found} == kept
        assert len(found) == len(kept)
        assert all(row[IS_GONE] == (row["value"] is None) for row in found if keeps_gone)
        assert not list(tmp_path.iterdir()), "what a process that is killed would leave"
        staged.close()


def test_rows_without_keys_come_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_staging, "_IN_MEMORY", 100)
    staged = RowStaging(SCHEMA, [])
    for number in range(20):
        staged.add(rows_of({number: "x" * number, -number: None}))
    assert staged.rows().read_all()["key"].to_pylist()[-2:] == [19, -19]
    staged.close()


def rows_of(values: dict[int, str | None]) -> pa.Table:
    return pa.table({"key": list(values), "value": list(values.values())}, schema=SCHEMA)
