"""Files of blobs and of vectors next to data files that are compacted, and files of blobs that are compacted too."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import compact, table_files
from pypaimon.streaming.compaction.blob_rewrite import blob_runs
from pypaimon.streaming.compaction.row_ranges import is_as_declared
from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.files.row_id_groups import RowIdGroup
from pypaimon.streaming.formats.blob_format import FOOTER, NULL, PLACEHOLDER, parse_index, tail_length
from pypaimon.streaming.paimon.internals import AtomicType, DataField, GenericRow, PaimonBlob, VectorType
from pypaimon.streaming.paimon.write_internals import BlobData, BlobFormatWriter
from support.samples import SOAK, sample_seed
from support.tables.evolving_table import EvolvingTable
from support.tables.handles import current_files

FIELDS = {"id": pa.int64(), "a": pa.string(), "x": pa.large_binary(), "l": pa.list_(pa.large_binary())}


def table_of(warehouse: Path, **options: str) -> EvolvingTable:
    return EvolvingTable(warehouse, fields=FIELDS, compaction__min__file_num="3", **options)


def filled(table: EvolvingTable) -> None:
    for number in range(3):
        rows = ({"id": each, "a": "a", "x": _blob(number, each), "l": _blobs(number, each)} for each in range(4))
        table.append(*rows)
    table.update({1: {"x": b"new"}, 5: {"x": b"new too"}})
    table.update({1: {"x": None}, 2: {"x": b"newest"}})
    table.update({0: {"a": "b"}})
    table.delete(3)


def _blob(number: int, each: int) -> bytes | None:
    return None if each == 3 else bytes([number, each]) * (each * 100)


def _blobs(number: int, each: int) -> list[bytes | None] | None:
    return None if each == 0 else [b"", None, bytes([number] * each)]


def shape(table: EvolvingTable) -> list[tuple[Any, ...]]:
    return sorted(
        (tuple(file.write_cols), file.first_row_id, file.row_count, file.min_sequence_number, file.max_sequence_number)
        for file in current_files(table.handle)
    )


def test_files_of_blobs_stay_as_they_are(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    filled(table)
    before = {file.file_name for file in current_files(table.handle) if file.file_name.endswith(".blob")}
    assert len(before) > 6
    assert compact(table.handle).compacted
    (data, *_), blobs = shape(table)[:1], {file.file_name for file in current_files(table.handle)}
    assert data == (("id", "a"), 0, 12, 1, 6)
    assert before < blobs and len(blobs) == len(before) + 1
    table.check()
    table.update({6: {"x": b"after"}})
    table.check()


def test_files_of_blobs_are_compacted_if_the_table_says_so(tmp_path: Path) -> None:
    table = table_of(tmp_path, blob_compaction__enabled="true")
    filled(table)
    due = table_files(table.handle).due.files
    assert due == len(current_files(table.handle))
    assert len(compact(table.handle).new_snapshot_ids) == 1
    assert shape(table) == [(("id", "a"), 0, 12, 1, 6), (("l",), 0, 12, 1, 3), (("x",), 0, 12, 1, 5)]
    table.check()
    # Only one file of blobs is newer, and the data file stays.
    table.update({7: {"x": b"after"}})
    assert compact(table.handle).compacted[0].before.files == 2
    table.check()
    assert not compact(table.handle, full=True).compacted


def test_marks_of_values_in_older_files_stay_if_no_file_has_them(tmp_path: Path) -> None:
    table = EvolvingTable(tmp_path, blob_compaction__enabled="true")
    table.numbered(4)
    table.add_column("x", "BLOB")
    table.update({1: {"x": b"one"}})
    (first,) = blob_files(table)
    assert lengths(first) == [NULL, 3, NULL, NULL]
    table.update({2: {"x": b"two"}})
    with first.open("wb") as stream:
        writer = BlobFormatWriter(stream)
        field = DataField(0, "x", AtomicType("BLOB"))
        for value in (PaimonBlob.PLACE_HOLDER, BlobData(b"one"), None, None):  # type: ignore[attr-defined]
            writer.add_element(GenericRow([value], [field]))
        writer.close()
    compact(table.handle)
    (made,) = blob_files(table)
    assert lengths(made) == [PLACEHOLDER, 3, 3, NULL]
    # pypaimon does not read it.
    assert table.rows() == table.model


def blob_files(table: EvolvingTable) -> list[Path]:
    return [Path(file.file_path) for file in current_files(table.handle) if file.file_name.endswith(".blob")]


def lengths(path: Path) -> list[int]:
    data = path.read_bytes()
    found: list[int] = parse_index(data[-tail_length(data[-FOOTER:], len(data)) :], len(data)).lengths.tolist()
    return found


def test_large_blobs_are_copied_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pypaimon.streaming.compaction.blob_rewrite._FETCHED_BYTES", 250)
    table = table_of(tmp_path, blob_compaction__enabled="true")
    filled(table)
    compact(table.handle)
    assert len(current_files(table.handle)) == 3
    table.check()


def test_a_damaged_file_of_blobs_is_named_and_nothing_changes(tmp_path: Path) -> None:
    table = table_of(tmp_path, blob_compaction__enabled="true")
    filled(table)
    path = next(Path(file.file_path) for file in current_files(table.handle) if file.file_name.endswith(".blob"))
    listed, whole = sorted(table.at.path.rglob("*")), path.read_bytes()
    path.write_bytes(whole[:-5] + b"\0\0\0\0\7")
    with pytest.raises(CorruptTableError, match=path.name):
        compact(table.handle)
    assert sorted(table.at.path.rglob("*")) == listed
    path.write_bytes(whole)
    table.check()


def test_a_schema_that_is_gone_is_named(tmp_path: Path) -> None:
    table = table_of(tmp_path, blob_compaction__enabled="true")
    filled(table)
    table.add_column("c")
    (table.at.path / "schema" / "schema-0").unlink()
    with pytest.raises(CorruptTableError, match=r"schema-0: is missing"):
        compact(table.handle, full=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30 if SOAK else 2))
def test_random_histories(tmp_path: Path, seed: int) -> None:
    drawn = random.Random(f"{sample_seed()} {seed}")
    table = table_of(
        tmp_path, blob_compaction__enabled=drawn.choice(["true", "true", "false"]),
        blob__target_file_size=drawn.choice(["1 b", "600 b", "1 mb"]), target_file_size=drawn.choice(["2 kb", "1 mb"]),
        source__split__open_file_cost="1 b",
    )  # fmt: skip
    for turn in range(14):
        step = drawn.choice(["append", "update", "update", "delete", "compact", "full"])
        ids = sorted(table.model)
        chosen = drawn.sample(ids, min(len(ids), 3))
        if step == "append":
            count = drawn.randint(1, 5)
            rows = ({"id": each, "a": "a", "x": _blob(turn, each), "l": _blobs(turn, each)} for each in range(count))
            table.append(*rows)
        elif step == "update" and chosen:
            name, values = drawn.choice([("x", _blob), ("a", lambda number, each: f"{number} {each}")])
            table.update({row_id: {name: values(turn, drawn.randint(0, 3))} for row_id in chosen})  # type: ignore[operator]
        elif step == "delete" and chosen:
            table.delete(chosen[0])
        else:
            assert not compact(table.handle, full=step == "full").conflicts
        table.check()


def file(name: str, first: int, rows: int, size: int, number: int = 1) -> Any:
    return SimpleNamespace(
        file_name=name, first_row_id=first, row_count=rows, file_size=size, max_sequence_number=number
    )


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ([file("a", 0, 5, 10)], []),
        ([file("a", 0, 5, 10), file("b", 5, 5, 10)], ["ab"]),
        ([file("b", 5, 5, 10), file("a", 0, 5, 10)], ["ab"]),
        ([file("a", 0, 5, 10), file("b", 6, 5, 10)], []),
        ([file("a", 0, 5, 10), file("b", 0, 2, 10, 2), file("c", 1, 1, 10, 3)], ["abc"]),
        # A large file is left out, unless another one has newer values of its rows.
        ([file("a", 0, 5, 10), file("b", 5, 5, 100), file("c", 10, 5, 10)], []),
        ([file("a", 0, 5, 10), file("b", 5, 5, 100), file("c", 5, 1, 1, 2), file("d", 10, 5, 10)], ["abc"]),
        # A run ends once it is large enough.
        ([file(name, 5 * at, 5, 50) for at, name in enumerate("abcde")], ["ab", "cd"]),
        ([file("a", 0, 5, 60), file("b", 5, 5, 60), file("c", 10, 5, 60), file("d", 15, 5, 1)], ["ab", "cd"]),
    ],
)
def test_runs(files: list[Any], wanted: list[str]) -> None:
    assert ["".join(each.file_name for each in run) for run in blob_runs(files, 100)] == wanted


@pytest.mark.parametrize(
    ("inside", "apart", "vector_file", "is_declared"),
    [("v", "", False, True), ("", "v", True, True), ("v", "", True, False), ("", "v", False, False)],
)
def test_vectors_are_where_the_options_say(inside: str, apart: str, vector_file: bool, is_declared: bool) -> None:
    fields = {"v": DataField(1, "v", VectorType(True, AtomicType("FLOAT"), 2))}
    schema = SimpleNamespace(fields=[DataField(0, "k", AtomicType("INT")), fields["v"]])
    data = file("data.parquet", 0, 5, 10)
    data.schema_id, data.write_cols = 0, ["k"] if vector_file else None
    vectors = file("data.vector.parquet", 0, 5, 10, 2)
    vectors.schema_id, vectors.write_cols = 0, ["v"]
    group = RowIdGroup(0, 5, (data,), vector_files=(vectors,) if vector_file else ())
    found = is_as_declared(
        group, [fields[name] for name in inside], [fields[name] for name in apart], lambda schema_id: schema
    )
    assert found == is_declared
