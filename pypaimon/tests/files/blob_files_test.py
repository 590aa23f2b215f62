"""Blob files of data evolution: whatever ranges they have, each row gets the value of the newest that holds one."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from copy import copy
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pypaimon.common.delta_varint_compressor import DeltaVarintCompressor

from pypaimon.streaming.files.blob_files import BlobColumn
from pypaimon.streaming.files.row_id_groups import RowIdGroup, row_id_groups
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.paimon.internals import DataFileMeta
from pypaimon.streaming.reading.blob import BlobFetcher
from support.tables.blob_tables import blob_table
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

PLACEHOLDER = "as before"
ROWS = 12
_NAMES = count()

Value = bytes | str | None
Layer = tuple[int, list[Value]]
"""First row, and what a blob file holds from there on."""

LAYERS = st.lists(
    st.tuples(
        st.integers(0, ROWS - 1),
        st.lists(st.one_of(st.none(), st.just(PLACEHOLDER), st.binary(max_size=5)), min_size=1, max_size=ROWS),
    ).map(lambda layer: (layer[0], layer[1][: ROWS - layer[0]])),
    max_size=6,
)


class Files:
    """Files that are made up in the directory of a table."""

    def __init__(self, table: Table) -> None:
        self.directory = TableDirectory.of(table.handle())
        scan = table.handle().new_read_builder().new_scan()
        files = [file for split in scan.plan().splits() for file in split.files]
        (self._blob,) = (file for file in files if file.file_name.endswith(".blob"))
        (self._data,) = (file for file in files if file.file_name.endswith(".parquet"))

    def blob(self, number: int, first: int, values: Sequence[Value]) -> DataFileMeta:
        content, lengths = b"", []
        for value in values:
            if isinstance(value, bytes):
                content += b"magc" + value + b"length..crc."
            lengths.append(-1 if value is None else -2 if isinstance(value, str) else len(value) + 16)
        index = DeltaVarintCompressor.compress(lengths)
        content += index + struct.pack("<IB", len(index), 1)
        made = self._placed(self._blob, number, first, len(values))
        Path(made.file_path).write_bytes(content)
        made.file_size = len(content)
        return made

    def data(self, number: int, first: int, rows: int) -> DataFileMeta:
        return self._placed(self._data, number, first, rows)

    def column(self, group: RowIdGroup) -> list[Any]:
        (field,) = (field for field in self.directory.schema(0).fields if field.name == "b")
        column = BlobColumn(field, group.first_row_id, group.row_count, group.blob_files, self.directory)
        fetcher = BlobFetcher(self.directory.store, None)
        found: list[Any] = []
        while left := column.available():
            cells = column.take(min(left, 5)).column("b")
            found += fetcher.fetch(fetcher.references(cells, "here")).to_pylist()
        fetcher.close()
        return found

    def _placed(self, like: DataFileMeta, number: int, first: int, rows: int) -> DataFileMeta:
        made = copy(like)
        suffix = like.file_name.rpartition(".")[2]
        made.file_name = f"made-{next(_NAMES)}.{suffix}"
        made.file_path = str(Path(like.file_path).with_name(made.file_name))
        made.first_row_id, made.row_count, made.max_sequence_number = first, rows, number
        return made


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    table = blob_table(tmp_path_factory.mktemp("warehouse"))
    table.commit([(1, "a", b"x")])
    return Files(table)


@given(
    layers=LAYERS,
    cuts=st.sets(st.integers(1, ROWS - 1)),
    covered=st.lists(st.booleans(), min_size=ROWS),
    rng=st.randoms(),
)
@settings(max_examples=80, deadline=None)
def test_each_row_gets_the_value_of_the_newest_file_that_holds_one(
    files: Files, layers: list[Layer], cuts: set[int], covered: list[bool], rng: Any
) -> None:
    """Over any data files, and over none: then rows are those that blob files have."""
    ends = [0, *sorted(cuts), ROWS]
    ranges = [(first, end) for first, end in pairwise(ends) if covered[first]]
    made = [files.data(0, first, end - first) for first, end in ranges]
    made += [files.blob(number, first, values) for number, (first, values) in enumerate(layers, 1)]
    rng.shuffle(made)

    wanted: dict[int, Value] = {row: None for first, end in ranges for row in range(first, end)}
    for first, values in layers:
        for row, value in enumerate(values, first):
            wanted.setdefault(row, None)
            if value != PLACEHOLDER:
                wanted[row] = value

    found: dict[int, Any] = {}
    for group in row_id_groups(made):
        assert not found or group.first_row_id > max(found)
        found.update(enumerate(files.column(group), group.first_row_id))
    assert found == wanted


def test_a_file_whose_rows_are_known_from_newer_ones_is_not_requested(files: Files) -> None:
    """Though they lie in several files, and some rows in both."""
    old = files.blob(1, 0, [b"old"] * ROWS)
    Path(old.file_path).unlink()
    half = ROWS // 2
    newer = [files.blob(2, 0, [b"a"] * (half + 1)), files.blob(3, half, [b"b"] * (ROWS - half))]
    (group,) = row_id_groups([files.data(0, 0, ROWS), old, *newer])
    assert files.column(group) == [b"a"] * half + [b"b"] * (ROWS - half)
