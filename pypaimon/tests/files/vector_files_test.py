"""Vectors in files of their own: several beside a data file, older and newer ones, of rows of which nothing else is."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import CorruptTableError
from pypaimon.streaming.model.plan import SplitMode
from support.samples import seeded
from support.tables.handles import create_table
from support.tables.stream_files import put, reader, split

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.list_(pa.float32(), 2)), ("w", pa.list_(pa.float32(), 2))])
STORED = {"id": pa.int64(), "v": pa.list_(pa.float32()), "w": pa.list_(pa.float32())}
OPTIONS = {"data-evolution.enabled": "true", "row-tracking.enabled": "true", "vector-field": "v,w"}


@pytest.fixture
def table(warehouse: Any) -> Any:
    return create_table(warehouse, "t", SCHEMA, options=OPTIONS)


@dataclass(frozen=True)
class Written:
    """A file: columns of rows from one row id on, written by a commit."""

    first: int
    count: int
    columns: tuple[str, ...]
    commit: int

    def value(self, column: str, row_id: int) -> Any:
        if column == "id":
            return row_id * 100 + self.commit
        return None if (row_id + self.commit) % 7 == 0 else [float(row_id), float(self.commit)]


def stored(table: Any, file: Written, rows: int | None = None) -> Any:
    """The file, as Java names it; with fewer rows than its manifest entry says, if given."""
    ids = range(file.first, file.first + (file.count if rows is None else rows))
    values = {name: pa.array([file.value(name, row) for row in ids], STORED[name]) for name in file.columns}
    kind = "" if "id" in file.columns else "vector."
    name = f"data-{file.first}-{file.commit}-{'-'.join(file.columns)}.{kind}parquet"
    meta = put(
        table,
        name,
        pa.table(values),
        first_row_id=file.first,
        write_cols=list(file.columns),
        max_sequence_number=file.commit,
    )
    meta.row_count = file.count
    return meta


def read(table: Any, files: list[Any], columns: list[str], **settings: Any) -> list[tuple[Any, ...]]:
    read = reader(table, projection=tuple(columns), include_row_kind=False, **settings)
    found = read.to_arrow([split(SplitMode.EVOLUTION, files)])
    return [tuple(row.values()) for row in found.to_pylist()]


def expected(files: list[Written], columns: list[str]) -> list[tuple[Any, ...]]:
    """Of each row, of each column, what the newest file has that was written with it."""
    rows = []
    for row_id in sorted({row for file in files for row in range(file.first, file.first + file.count)}):
        covering = [file for file in files if file.first <= row_id < file.first + file.count]
        covering.sort(key=lambda file: file.commit)
        newest = {name: file for file in covering for name in file.columns}
        rows.append(tuple(newest[name].value(name, row_id) if name in newest else None for name in columns))
    return rows


def random_files(drawn: random.Random) -> list[Written]:
    """Data files one after the other, some with vectors in them, and vector files of all or some of their rows."""
    files, first = [], 0
    for _ in range(drawn.randint(1, 3)):
        count = drawn.randint(1, 30)
        within = drawn.choice([("id",), ("id", "v"), ("id", "v", "w")])
        files.append(Written(first, count, within, 2))
        first += count + drawn.choice([0, 5])
    for commit in drawn.sample([1, 3, 4, 5], 3):
        columns = drawn.choice([("v",), ("w",), ("v", "w")])
        start = 0
        while start < first:
            count = min(drawn.randint(1, 20), first - start)
            if drawn.random() < 0.7:
                files.append(Written(start, count, columns, commit))
            start += count
    return files


def test_each_value_is_that_of_the_newest_file_with_it(table: Any) -> None:
    drawn = seeded("vector files")
    for number in range(40):
        files = random_files(drawn)
        written = [stored(table, file) for file in files]
        drawn.shuffle(written)
        for columns in (["id", "v", "w"], ["w"], ["id"]):
            rows = expected(files, columns)
            assert read(table, written, columns, batch_size=drawn.choice([3, 100])) == rows, f"example {number}"


def test_a_vector_file_that_holds_fewer_rows_is_damaged(table: Any) -> None:
    files = [Written(0, 20, ("id",), 1), Written(0, 8, ("v",), 1), Written(8, 12, ("v",), 1)]
    written = [stored(table, files[0]), stored(table, files[1]), stored(table, files[2], rows=9)]
    with pytest.raises(CorruptTableError, match=r"holds 9 rows, its manifest says 12") as raised:
        read(table, written, ["id", "v"])
    assert raised.value.path == written[2].file_path


def test_no_vector_file_is_opened_for_other_columns(table: Any) -> None:
    files = [Written(0, 20, ("id",), 1), Written(0, 20, ("v",), 1)]
    written = [stored(table, file) for file in files]
    written[1].file_path += ".gone"
    assert read(table, written, ["id", "w"]) == expected(files, ["id", "w"])
