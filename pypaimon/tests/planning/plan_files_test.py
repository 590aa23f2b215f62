"""Files of a plan are columns until they are asked for: what comes out equals the plain way, whatever is cut where."""

from __future__ import annotations

import pickle
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pypaimon.manifest.schema.manifest_entry import MANIFEST_ENTRY_SCHEMA

from pypaimon.streaming.formats import avro_container
from pypaimon.streaming.metadata import data_file_meta
from pypaimon.streaming.metadata.data_file_meta import DataFiles
from pypaimon.streaming.metadata.file_paths import FilePaths
from pypaimon.streaming.metadata.manifest_tables import manifest_parser
from pypaimon.streaming.model.plan import SplitMode, StreamSplit
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.paimon.internals import (
    AtomicType,
    DataField,
    DataFileMeta,
    DeletionFile,
    GenericRow,
    GenericRowSerializer,
    TableSchema,
    Timestamp,
)
from pypaimon.streaming.planning.selection import name_hashes
from pypaimon.streaming.planning.splits import SplitFactory
from support.tables.manifest_entries import avro, entry_record

pytestmark = pytest.mark.slow

PARTITION = DataField(0, "p", AtomicType("STRING"))
KEYS = [DataField(1, "id", AtomicType("BIGINT")), DataField(2, "at", AtomicType("TIMESTAMP(9)"))]
PATHS = FilePaths("/t", (PARTITION,))


def _row(fields: list[DataField], *values: Any) -> bytes:
    return bytes(GenericRowSerializer.to_bytes(GenericRow(list(values), fields)))


_longs = st.integers(-(2**40), 2**40)
_moments = st.datetimes(datetime(1800, 1, 1), datetime(2200, 1, 1))
_keys = st.tuples(_longs, st.one_of(st.none(), _moments))
_entries = st.fixed_dictionaries(
    {
        "partition": st.sampled_from([None, "a", "b/c"]),
        "keys": st.tuples(_keys, _keys),
        "_BUCKET": st.integers(-2, 3),
        "_FILE_SIZE": st.integers(0, 100),
        "_ROW_COUNT": st.integers(0, 100),
        "_LEVEL": st.integers(0, 5),
        "_EXTRA_FILES": st.lists(st.sampled_from(["x.index", "y"]), max_size=2),
        "_CREATION_TIME": st.one_of(st.none(), _longs),
        "_EXTERNAL_PATH": st.one_of(st.none(), st.just("file:/elsewhere/f.parquet")),
        "_WRITE_COLS": st.one_of(st.none(), st.just(["id"])),
    }
)


def _table(drawn: list[dict[str, Any]]) -> pa.Table:
    records = []
    for number, entry in enumerate(drawn):
        changes = {name: value for name, value in entry.items() if name.startswith("_")}
        low, high = (_row(KEYS, *key) for key in entry["keys"])
        partition = _row([PARTITION], entry["partition"])
        changes |= {"_MIN_KEY": low, "_MAX_KEY": high, "_PARTITION": partition}
        records.append(entry_record(f"f-{number}.parquet", **changes))
    return manifest_parser()(avro(MANIFEST_ENTRY_SCHEMA, records))


def _plainly(table: pa.Table, drawn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    wanted = []
    for stored, entry in zip(table.to_pylist(), drawn, strict=True):
        name = {None: "__DEFAULT_PARTITION__", "a": "a", "b/c": "b%2Fc"}[entry["partition"]]
        directory = f"/t/p={name}/bucket-{'postpone' if stored['bucket'] == -2 else stored['bucket']}"
        moment = stored["creation_time"]
        wanted.append(
            {
                "file_name": stored["file_name"],
                "file_path": "file:/elsewhere/f.parquet"
                if stored["external_path"]
                else f"{directory}/{stored['file_name']}",
                "min_key": list(entry["keys"][0]),
                "max_key": list(entry["keys"][1]),
                "creation_time": None if moment is None else Timestamp.from_epoch_millis(moment),
                "sizes": (stored["row_count"], stored["file_size"], stored["level"]),
                "lists": (stored["extra_files"], stored["write_cols"], []),
            }
        )
    return wanted


def _shown(file: DataFileMeta) -> dict[str, Any]:
    return {
        "file_name": file.file_name,
        "file_path": file.file_path,
        "min_key": file.min_key.values,
        "max_key": file.max_key.values,
        "creation_time": file.creation_time,
        "sizes": (file.row_count, file.file_size, file.level),
        "lists": (file.extra_files, file.write_cols, file.value_stats_cols),
    }


@given(drawn=st.lists(_entries, min_size=1, max_size=12), data=st.data())
def test_any_part_of_the_files_is_what_the_entries_say(drawn: list[dict[str, Any]], data: st.DataObject) -> None:
    table = _table(drawn)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_file_meta, "_MANY", data.draw(st.sampled_from([0, 100])))
        start = data.draw(st.integers(0, len(drawn)))
        stop = data.draw(st.integers(start, len(drawn)))
        some, wanted = DataFiles(table, PATHS, KEYS).some(start, stop), _plainly(table, drawn)
        made = some.make()
    assert [_shown(file) for file in made] == wanted[start:stop]
    assert len(some) == len(made)
    assert (some.row_count, some.file_size) == (sum(f.row_count for f in made), sum(f.file_size for f in made))


def test_many_files_without_extra_ones_share_an_empty_list() -> None:
    plain = {"partition": "a", "keys": ((1, None), (2, None)), "_BUCKET": 0}
    others = [plain | {"_EXTRA_FILES": ["x.index"]}] * 2
    made = DataFiles(_table([plain] * 2000 + others), PATHS, KEYS).make(0, 2002)
    assert [file.extra_files for file in made] == [[]] * 2000 + [["x.index"]] * 2
    # Objects are made for 1,024 files at once.
    assert len({id(file.extra_files) for file in made[:1024]}) == 1


class _Untouched:
    """Files whose objects nobody may ask for yet."""

    row_count, file_size = 7, 70

    def __len__(self) -> int:
        return 1

    def make(self) -> list[DataFileMeta]:
        raise AssertionError("the objects of the files were made")


def test_counting_makes_no_objects() -> None:
    split = StreamSplit(SplitMode.ROWS, _Untouched(), GenericRow([], []), 0, snapshot_id=1, before_files=_Untouched())
    assert (split.row_count, split.file_size) == (7, 70)
    with pytest.raises(AssertionError, match="were made"):
        split.files  # noqa: B018


def test_a_split_goes_elsewhere_without_the_columns_of_its_plan() -> None:
    template = {"partition": "a", "keys": ((1, None), (2, None)), "_BUCKET": 0}
    files = DataFiles(_table([template] * 2000), PATHS, KEYS)
    split = StreamSplit(
        SplitMode.OVERWRITE, files.some(5, 6), GenericRow([], []), 0, snapshot_id=1, before_files=files.some(8, 9)
    )
    pickled = pickle.dumps(split)
    assert len(pickled) < 10_000
    again = pickle.loads(pickled)
    assert (again.files, again.before_files) == (split.files, split.before_files)
    assert (again.row_count, again.file_size) == (1, 10)
    assert split.files is split.files


def test_a_split_of_some_files_keeps_their_deletion_vectors() -> None:
    template = {"partition": "a", "keys": ((1, None), (2, None)), "_BUCKET": 0}
    files = DataFiles(_table([template] * 3), PATHS, KEYS).some(0, 3)
    deletions = [None, DeletionFile("index", 1, 2, 3), None]
    split = StreamSplit(SplitMode.ROWS, files, GenericRow([], []), 0, snapshot_id=7, deletion_files=deletions)
    part = split.of_files(range(1, 3))
    assert (part.files, part.data_deletion_files, part.snapshot_id) == (split.files[1:], deletions[1:], 7)
    assert (len(split.files), split.data_deletion_files, part.row_count) == (3, deletions, 2)


def test_a_split_of_many_files_names_the_first_ones() -> None:
    template = {"partition": "a", "keys": ((1, None), (2, None)), "_BUCKET": 0}
    files = DataFiles(_table([template] * 5), PATHS, KEYS)
    few = StreamSplit(SplitMode.ROWS, files.some(0, 2), GenericRow([], []), 3, snapshot_id=7)
    many = StreamSplit(SplitMode.ROWS, files.some(0, 5), GenericRow([], []), 3, snapshot_id=7)
    names = [file.file_name for file in many.files]
    assert repr(few) == (
        "StreamSplit(rows of snapshot 7, partition {}, bucket 3, "
        f"{few.row_count} records, {few.file_size} bytes, files [{', '.join(names[:2])}])"
    )
    assert repr(many).endswith(f"files [{', '.join(names[:3])}, and 2 more])")


def _greedily(sizes: list[int], groups: list[int], target: int, least: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    first = weight = index = 0
    while index < len(sizes):
        end = index + 1
        while end < len(sizes) and groups[end] == groups[index]:
            end += 1
        size = max(sum(sizes[index:end]), least)
        if index > first and weight + size > target:
            found.append((first, index))
            first, weight = index, 0
        weight, index = weight + size, end
    return [*found, (first, len(sizes))]


@given(
    files=st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=1, max_size=30),
    before=st.integers(0, 3),
    target=st.integers(0, 200),
    least=st.integers(0, 20),
)
def test_files_are_packed_as_one_by_one(files: list[tuple[int, bool]], before: int, target: int, least: int) -> None:
    append = TableSchema(
        id=0, fields=[], highest_field_id=0, partition_keys=[], primary_keys=[], options={}, comment=None
    )
    factory = SplitFactory(append, TableTraits.of(append), PATHS, target, least)
    sizes = [size for size, _ in files]
    groups = np.cumsum([new for _, new in files])
    packed = factory._packed(
        np.array([9] * before + sizes), np.array([-1] * before + groups.tolist()), before, before + len(files)
    )
    assert [(first - before, last - before) for first, last in packed] == _greedily(
        sizes, groups.tolist(), target, least
    )


@given(names=st.lists(st.one_of(st.text("abc-09.", max_size=40), st.text("aé𝄞", max_size=5)), max_size=8))
def test_names_hash_as_one_by_one(names: list[str]) -> None:
    wanted = []
    for name in names:
        result = 0
        for unit in np.frombuffer(name.encode("utf-16-be"), dtype=">u2").tolist():
            result = (31 * result + unit) & 0xFFFFFFFF
        wanted.append(result - (1 << 32) if result >= 1 << 31 else result)
    sliced = pa.chunked_array([pa.array(["before", *names], pa.string()).slice(1)])
    assert name_hashes(sliced).tolist() == wanted


@given(counts=st.lists(st.integers(1, 40), min_size=1, max_size=6), piece=st.integers(1, 100))
def test_records_decoded_in_pieces_are_the_same(counts: list[int], piece: int) -> None:
    numbers = iter(range(1000))
    blocks = [
        (
            count,
            avro_container.parse(
                avro(MANIFEST_ENTRY_SCHEMA, [entry_record(f"f-{next(numbers)}") for _ in range(count)])
            ).records,
        )
        for count in counts
    ]
    schema = avro_container.parse(avro(MANIFEST_ENTRY_SCHEMA, [])).schema
    container = avro_container.Container(schema, tuple(blocks))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro_container, "_PIECE", piece)
        sizes = [each.count for each in container.pieces()]
        table = avro_container.to_arrow(container)
    assert sum(sizes) == container.count == sum(counts)
    assert all(size <= max(piece, *counts) for size in sizes)
    assert table is not None
    assert [each["_FILE_NAME"] for each in table["_FILE"].to_pylist()] == [
        f"f-{number}" for number in range(sum(counts))
    ]
