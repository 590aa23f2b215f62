"""Plans of many files: packed while they wait, and written and read as one file."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from pypaimon.streaming.maintenance import references
from pypaimon.streaming.maintenance.plan import plan_files, plan_text
from pypaimon.streaming.maintenance.references import PackedFiles, TableFile
from pypaimon.streaming.metadata.entry_kind import EntryKind

FILES = [TableFile(f'/t/p="é"/bucket-0/data-{number}', "orphan", number or None) for number in range(25)]


@pytest.mark.parametrize("together", [1, 10, 25, 100])
def test_packed_files_are_the_same(monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    monkeypatch.setattr(references, "_ROWS", together)
    packed = PackedFiles(iter(FILES))
    assert packed and [*packed] == FILES == [*packed]
    assert not PackedFiles(())


@pytest.mark.parametrize("count", [0, 1, 25])
def test_a_plan_is_read_as_it_was_written(count: int) -> None:
    text = plan_text(FILES[:count], "/t")
    assert json.loads(text)["version"] == 1
    assert [each.path for each in plan_files("/t", text)] == [each.path for each in FILES[:count]]


def test_names_of_any_length_are_counted() -> None:
    names = ["a", "data-1", "data-12", "data-123", "dätä-1234", *(f"data-{number:x}{number}" for number in range(40))]
    deleted = [*names[::2], names[0]]
    kinds = [EntryKind.ADD] * len(names) + [EntryKind.DELETE] * len(deleted)
    entries = pa.table(
        {
            "kind": pa.array(kinds, pa.int8()),
            "file_name": [*names, *deleted],
            "extra_files": pa.array([[f"{name}.index"] for name in (*names, *deleted)], pa.list_(pa.string())),
        }
    )
    assert {*references._positive(entries, entries.slice(0, 0))} == {
        name for each in names[1::2] for name in (each, f"{each}.index")
    }
