"""Blobs: only those that come out are fetched, in batches of bounded size, as bytes or as places to read from."""

from __future__ import annotations

import io
import random
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory
from pypaimon.table.row.blob import BlobDescriptor

from pypaimon.streaming import StreamConfigError, UnsupportedTableError, stream_read_builder
from pypaimon.streaming.reading import blob_values
from pypaimon.streaming.stream_types import Blob, StreamSplit
from support.corpus.cases import load
from support.stores.counting_file_io import CountingFileIO
from support.stores.fault_file_io import Call, FaultFileIO
from support.tables.blob_tables import batches, blob_table, rows
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

KB = 1 << 10


def noise(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = blob_table(tmp_path)
    made.commit([(key, f"n{key % 10}", noise(key, 30 * KB)) for key in range(40)])
    made.commit([(40, "null", None), (41, "empty", b""), (42, "n0", noise(42, 30 * KB))])
    return made


def splits_of(table: Table) -> list[StreamSplit]:
    with table.state_builder().new_streaming_scan() as scan:
        return [split for plan in scan.stream_sync() for split in plan.splits()]


def builder_where(table: Table, name: str, file_io: Any) -> Any:
    builder = table.state_builder(file_io)
    return builder.with_filter(builder.new_predicate_builder().equal("name", name))


def test_values_come_out_null_and_empty_ones_too(table: Table) -> None:
    found = {row["id"]: row["b"] for row in rows(table.state_builder())}
    assert found == {**{key: noise(key, 30 * KB) for key in (*range(40), 42)}, 40: None, 41: b""}
    assert rows(table.state_builder(CountingFileIO())) == rows(table.state_builder())


def test_of_rows_that_are_left_out_no_byte_of_a_blob_is_fetched(table: Table) -> None:
    """Indexes of blob files come on top, some bytes for each row."""
    store = CountingFileIO()
    found = rows(builder_where(table, "n0", store))
    needed = sum(len(row["b"]) for row in found)
    assert len(found) == 5 and needed == 5 * 30 * KB
    assert needed <= store.of(".blob") <= 1.05 * needed


def test_a_column_that_is_not_read_costs_nothing(table: Table) -> None:
    store = CountingFileIO()
    assert len(rows(table.state_builder(store).with_projection(["id"]))) == 43
    assert not store.of(".blob")


def test_blobs_side_by_side_are_asked_for_together(table: Table) -> None:
    store = CountingFileIO()
    rows(table.state_builder(store))
    assert store.largest > 30 * 30 * KB


def test_indexes_of_several_blob_files_are_asked_for_at_the_same_time(tmp_path: Path) -> None:
    table = blob_table(tmp_path, blob__target_file_size=f"{60 * KB} b")
    written = [(key, "n", noise(key, 30 * KB)) for key in range(9)]
    table.commit(written)
    missing = {path.name for path in table.files(".blob")}
    assert len(missing) > 2
    barrier = threading.Barrier(len(missing), timeout=60)
    file_io = FaultFileIO()

    def answered(call: Call) -> Any:
        if call.name in missing:
            missing.remove(call.name)
            barrier.wait()
        return call.answer()

    file_io.wherever(answered)
    assert [(row["id"], row["name"], row["b"]) for row in rows(table.state_builder(file_io))] == written
    assert not missing


def test_what_becomes_a_delete_by_a_filter_has_no_blob() -> None:
    """Nor have the deletes that are stored; none is fetched for them."""
    scenario = load("java-2.1-more", "blob_pk_deduplicate")
    table = CatalogFactory.create({"warehouse": str(scenario.warehouse)}).get_table("d.t")
    builder = stream_read_builder(table).with_start("earliest").with_end(latest=True)
    builder.with_filter(builder.new_predicate_builder().equal("name", "a"))
    found = rows(builder)
    deleted = [row for row in found if row["_row_kind"] == "-D"]
    assert {row["name"] for row in deleted} - {"a", None} and all(row["b"] is None for row in deleted)
    kept = [row for row in found if row["_row_kind"] == "+I"]
    assert kept and all(row["name"] == "a" and row["b"] for row in kept)


def test_a_batch_has_as_many_rows_as_its_blobs_allow(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_values, "BATCH_BYTES", 100 * KB)
    found = batches(table.state_builder())
    sizes = [[len(blob or b"") for blob in batch.column("b").to_pylist()] for batch in found]
    assert all(sum(each) <= 100 * KB for each in sizes)
    assert all(sum(each) + 30 * KB > 100 * KB for each in sizes[:13])
    assert [row["id"] for batch in found for row in batch.to_pylist()] == list(range(43))

    monkeypatch.setattr(blob_values, "BATCH_BYTES", KB)
    assert [row["id"] for batch in batches(table.state_builder()) for row in batch.to_pylist()] == list(range(43))


def test_memory_does_not_grow_with_the_table(tmp_path: Path) -> None:
    """Blobs come in batches of 16 MB at most, and what was let go of is free."""
    made = blob_table(tmp_path)
    made.commit([(key, "n", noise(key, 3 << 20)) for key in range(25)])
    read, splits = made.state_builder().new_read(), splits_of(made)
    before, most = pa.total_allocated_bytes(), 0
    for batch in read.iter_batches(splits):
        most = max(most, pa.total_allocated_bytes() - before)
        assert batch.nbytes < 17 << 20
        del batch
    assert 10 << 20 < most < 40 << 20


@pytest.mark.parametrize("asked", ["with_blob_descriptors", "blob-as-descriptor"])
def test_descriptors_are_pypaimon_s_and_no_blob_is_fetched_for_them(table: Table, asked: str) -> None:
    store = CountingFileIO()
    if asked == "with_blob_descriptors":
        builder = table.state_builder(store).with_blob_descriptors()
    else:
        builder = table.state_builder(store, blob_as_descriptor="true")
    found = {row["id"]: row["b"] for row in rows(builder)}
    assert found[40] is None and store.of(".blob") < 5 * KB

    descriptor = BlobDescriptor.deserialize(found[3])
    with open(descriptor.uri.removeprefix("object://"), "rb") as file:
        file.seek(descriptor.offset)
        assert file.read(descriptor.length) == noise(3, 30 * KB)
    assert found[3] == descriptor.serialize()


def test_the_builder_beats_the_option(table: Table) -> None:
    builder = table.state_builder(blob_as_descriptor="true").with_blob_descriptors(False)
    assert rows(builder) == rows(table.state_builder())


def test_a_blob_reads_what_it_is_asked_for(table: Table) -> None:
    store = CountingFileIO()
    builder = table.state_builder(store).with_blob_descriptors()
    read = builder.new_read()
    with builder.new_streaming_scan() as scan:
        splits = [split for plan in scan.stream_sync() for split in plan.splits()]
    data = read.to_arrow(splits).sort_by("id")
    blobs = read.blobs(data["b"])
    assert blobs[40] is None
    blob, content = blobs[7], noise(7, 30 * KB)
    assert isinstance(blob, Blob) and blob.length == len(content)

    before = store.of(".blob")
    assert blob.read(1000, 50) == content[1000:1050]
    assert store.of(".blob") - before == 50
    assert blob.read() == blob.to_data() == content
    assert blob.read(30 * KB - 3, 50) == content[-3:] and blob.read(30 * KB, 1) == b""
    with blob.open() as file:
        assert isinstance(file, io.BufferedReader)
        assert file.read(10) == content[:10]
        file.seek(-20, io.SEEK_END)
        assert file.read() == content[-20:]
    assert blob.to_descriptor().serialize() == data["b"][7].as_py()
    with pytest.raises(ValueError, match="negative"):
        blob.read(-1)
    empty = blobs[41]
    assert empty is not None and empty.read() == b"" and empty.open().read() == b""


def test_rows_give_pypaimon_s_blobs(table: Table) -> None:
    for builder in (table.state_builder(), table.state_builder().with_blob_descriptors()):
        read = builder.new_read()
        with builder.new_streaming_scan() as scan:
            found = [row for plan in scan.stream_sync() for row in read.to_iterator(plan.splits())]
        blobs = {row.get_field(0): row.get_blob(2) for row in found}
        assert blobs[5].to_data() == noise(5, 30 * KB) and blobs[40] is None


def test_nulls_can_be_asked_for_without_fetching_a_blob(table: Table) -> None:
    store = CountingFileIO()
    builder = table.state_builder(store)
    builder.with_filter(builder.new_predicate_builder().is_null("b"))
    assert [row["id"] for row in rows(builder)] == [40]
    assert store.of(".blob") < KB


def test_frames_of_a_video_are_refused_by_name(table: Table) -> None:
    """pypaimon can keep them so; they must not pass for nulls."""
    for split in (splits := splits_of(table)):
        for file in split.files:
            if file.file_name.endswith(".blob"):
                file.file_name = file.file_name.replace(".blob", ".video")
                file.file_path = file.file_path.replace(".blob", ".video")
    with pytest.raises(UnsupportedTableError, match="frames of a video"):
        table.state_builder().new_read().to_arrow(splits)


@pytest.mark.parametrize("places", ["/tmp", [""], ["http://host/x"], [3]])
def test_places_that_cannot_be_read_are_refused(table: Table, places: Any) -> None:
    with pytest.raises(StreamConfigError, match="with_blob_places"):
        table.state_builder().with_blob_places(places)
