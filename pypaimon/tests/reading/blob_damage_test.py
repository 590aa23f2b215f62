"""Blobs that are not where they should be: an error that names the place, and no row half filled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pypaimon.table.row.blob import BlobDescriptor

from pypaimon.streaming import (
    CorruptTableError,
    PaimonStreamError,
    PositionExpiredError,
    StreamConfigError,
    UnsupportedTableError,
)
from pypaimon.streaming.reading.blob import BlobPlaces
from support.docs.cli_runs import Program
from support.spark.driver import Driver, batch_tasks
from support.stores.fault_file_io import Call, FaultFileIO
from support.tables.blob_tables import batches, blob_table, rows
from support.tables.streamed_table import Table

SIZE = 5000


@pytest.fixture(params=["local", "store"])
def file_io(request: pytest.FixtureRequest) -> FaultFileIO | None:
    return None if request.param == "local" else FaultFileIO()


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = blob_table(tmp_path)
    made.commit([(key, "n", bytes([key]) * SIZE) for key in range(6)])
    return made


def stored(tmp_path: Path, *descriptors: bytes) -> Table:
    """A table whose blobs lie where these say."""
    made = blob_table(tmp_path, blob_descriptor_field="b")
    made.commit([(key, "n", each) for key, each in enumerate(descriptors)])
    return made


def descriptor(path: object, offset: int = 0, length: int = SIZE) -> bytes:
    return bytes(BlobDescriptor(str(path), offset, length).serialize())


@pytest.mark.parametrize("kept", [0, 3, 100, SIZE, 3 * SIZE + 7, -5, -1])
def test_a_blob_file_that_was_cut_is_damaged(table: Table, file_io: FaultFileIO | None, kept: int) -> None:
    (path,) = table.files(".blob")
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CorruptTableError) as raised:
        batches(table.state_builder(file_io))
    assert raised.value.path.endswith(path.name)


def test_a_blob_file_that_is_cut_while_it_is_read_is_damaged(table: Table, file_io: FaultFileIO | None) -> None:
    """Its index was read before."""
    builder = table.state_builder(file_io).with_blob_descriptors()
    read = builder.new_read()
    with builder.new_streaming_scan() as scan:
        splits = [split for plan in scan.stream_sync() for split in plan.splits()]
    blobs = read.blobs(read.to_arrow(splits)["b"])
    (path,) = table.files(".blob")
    path.write_bytes(path.read_bytes()[: 3 * SIZE])
    assert blobs[0] is not None and blobs[0].read() == bytes(SIZE)
    last = blobs[5]
    assert last is not None
    with pytest.raises(CorruptTableError, match="ends before byte"):
        last.read()
    with last.open() as file, pytest.raises(CorruptTableError, match="ends before byte"):
        file.read()


def test_another_file_in_its_place_is_damage(table: Table, file_io: FaultFileIO | None) -> None:
    table.commit([(9, "n", b"x" * SIZE)])
    first, second = table.files(".blob")
    sizes = first.stat().st_size, second.stat().st_size
    first.write_bytes(second.read_bytes().ljust(sizes[0], b"\0")[: sizes[0]])
    with pytest.raises(CorruptTableError, match=first.name):
        batches(table.state_builder(file_io))


def test_a_missing_blob_file_is_damage_while_its_snapshot_is_there(table: Table, file_io: FaultFileIO | None) -> None:
    (path,) = table.files(".blob")
    path.unlink()
    with pytest.raises(CorruptTableError, match=path.name):
        batches(table.state_builder(file_io))
    assert len(rows(table.state_builder(file_io).with_projection(["id"]))) == 6


def test_a_blob_file_that_expired_with_its_snapshot_is_not_damage(table: Table) -> None:
    builder = table.state_builder()
    with builder.new_streaming_scan() as scan:
        splits = [split for plan in scan.stream_sync() for split in plan.splits()]
    table.commit([(9, "n", b"x" * SIZE)])
    (blob,) = (file for split in splits for file in split.files if file.file_name.endswith(".blob"))
    for path in (Path(blob.file_path), table.path / "snapshot" / "snapshot-1"):
        path.unlink()
    (table.path / "snapshot" / "EARLIEST").write_text("2")
    with pytest.raises(PositionExpiredError):
        builder.new_read().to_arrow(splits)


def test_a_store_that_fails_is_not_damage(table: Table) -> None:
    store = FaultFileIO()

    def failing(call: Call) -> Any:
        if call.name.endswith(".blob"):
            raise OSError("try again")
        return call.answer()

    store.wherever(failing)
    with pytest.raises(PaimonStreamError) as raised:
        batches(table.state_builder(store))
    assert raised.value.retriable


def test_stored_descriptors_are_followed_and_none_of_them_comes_out(tmp_path: Path) -> None:
    place = tmp_path / "a place"
    place.write_bytes(bytes(range(256)) * 40)
    table = stored(tmp_path, descriptor(place, 3, 5), descriptor(place, 10_000, -1), descriptor(f"file:{place}", 7, 0))
    found = [row["b"] for row in rows(table.state_builder())]
    assert found == [bytes([3, 4, 5, 6, 7]), place.read_bytes()[10_000:], b""]
    lengths = [
        BlobDescriptor.deserialize(row["b"]).length for row in rows(table.state_builder().with_blob_descriptors())
    ]
    assert lengths == [5, 240, 0]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda place: descriptor(place.parent / "none"), "no such file"),
        (lambda place: descriptor(place.parent / "none", length=-1), "no such file"),
        (lambda place: descriptor(place, 9_000, 2_000), "ends before byte 11000"),
        (lambda place: descriptor(place, 20_000, -1), "a blob descriptor says 20000"),
        (lambda place: descriptor(place, 0, 1 << 45), "a blob descriptor says 0 to"),
        (lambda place: descriptor(place, 1 << 62, 1 << 62), "a blob descriptor says"),
        (lambda place: descriptor(place, (1 << 63) - 5, 10), "a blob descriptor says"),
        (lambda place: descriptor(place.parent), "may not be read"),
    ],
    ids=[
        "nowhere",
        "nowhere, to its end",
        "over the end",
        "behind the end",
        "huge",
        "beyond integers",
        "up to beyond them",
        "a directory",
    ],
)
def test_a_descriptor_that_points_to_nothing_names_the_place(
    tmp_path: Path, made: Callable[[Path], bytes], said: str
) -> None:
    place = tmp_path / "place"
    place.write_bytes(bytes(10_000))
    table = stored(tmp_path, descriptor(place), made(place))
    with pytest.raises(CorruptTableError, match=said) as raised:
        batches(table.state_builder())
    assert raised.value.path.startswith(str(tmp_path))


@pytest.mark.parametrize(
    "content", [b"", b"no descriptor", descriptor("/x")[:-3], descriptor("/x", -1), descriptor("/x", 0, -7)]
)
def test_an_invalid_descriptor_is_damage(tmp_path: Path, content: bytes) -> None:
    table = blob_table(tmp_path, blob_descriptor_field="b")
    table.commit([(1, "n", descriptor(tmp_path))])
    (file,) = table.files(".parquet")
    held = pq.read_table(file)
    index = held.schema.get_field_index("b")
    pq.write_table(
        held.set_column(index, held.schema.field(index), pa.array([content], held.schema.field(index).type)), file
    )
    with pytest.raises(CorruptTableError, match="descriptor"):
        batches(table.state_builder())


def test_places_outside_of_those_that_are_allowed_are_refused(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside" / "place", tmp_path / "inside2" / "place"
    for place in (inside, outside):
        place.parent.mkdir()
        place.write_bytes(bytes(SIZE))
    table = stored(tmp_path, descriptor(inside), descriptor(outside))
    assert len(rows(table.state_builder())) == 2
    assert len(rows(table.state_builder().with_blob_places([str(inside.parent), f"file://{outside.parent}"]))) == 2
    for asked in (table.state_builder(), table.state_builder().with_blob_descriptors()):
        with pytest.raises(UnsupportedTableError, match=r"inside2.*with_blob_places"):
            batches(asked.with_blob_places([str(inside.parent)]))
    hidden = stored(tmp_path / "other", descriptor(f"{inside.parent}/../inside2/place"))
    with pytest.raises(UnsupportedTableError, match="inside2"):
        batches(hidden.state_builder().with_blob_places([str(inside.parent)]))


@pytest.fixture
def two_places(tmp_path: Path) -> tuple[Table, list[str]]:
    """A table with a blob in each of two directories, and these."""
    directories = [tmp_path / name for name in ("one", "two")]
    for directory in directories:
        directory.mkdir()
        (directory / "place").write_bytes(bytes(SIZE))
    table = stored(tmp_path, *(descriptor(directory / "place") for directory in directories))
    return table, [str(directory) for directory in directories]


def test_places_are_named_for_spark_by_an_option(two_places: tuple[Table, list[str]]) -> None:
    table, places = two_places

    def found(*named: str) -> int:
        given = {"path": str(table.path), "blob-places": ",".join(named)}
        driver = Driver(given)
        start = driver.initial()
        read = driver.rows(start, driver.latest(start))
        tasks = batch_tasks(given)
        assert len(read) == sum(batch.num_rows for batches in tasks for batch in batches)
        return len(read)

    assert found(*places) == 2
    with pytest.raises(UnsupportedTableError, match="/two/place"):
        found(places[0])
    with pytest.raises(StreamConfigError, match=r"'blob-places'.*is not a directory that the table's FileIO can read"):
        found("https://example.org/blobs")


def test_places_are_named_on_the_command_line(
    two_places: tuple[Table, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, places = two_places

    def tail(*named: str) -> Any:
        options = [part for place in named for part in ("--blob-place", place)]
        return Program(tmp_path, capsys)("tail", "db.t", "--until-latest", "--format", "json", *options)

    assert len(tail(*places).records) == len(tail().records) == 2
    refused = tail(places[0])
    assert refused.code and "/two/place" in refused.err


@pytest.mark.parametrize(
    ("allowed", "place", "inside"),
    [
        (None, "s3://lake/other/x", True),
        (None, "S3://lake/x", True),
        (None, "s3a://lake/x", True),
        (None, "s3://pond/x", False),
        (None, "/etc/passwd", False),
        (None, "file:/etc/passwd", False),
        (None, "http://host/x", False),
        (["s3://pond/a"], "s3://pond/a/b", True),
        (["s3://pond/a"], "s3://pond/ab", False),
        (["s3://pond/a"], "s3://pond/a/../b", False),
        (["s3://pond"], "s3://pond/b", True),
        ([], "s3://lake/db.db/t/bucket-0/x", True),
        ([], "s3://lake/db.db/u/x", False),
        (["/data"], "file:///data/x", True),
    ],
)
def test_places_are_compared_directory_by_directory(allowed: list[str] | None, place: str, inside: bool) -> None:
    places = BlobPlaces.of("s3://lake/db.db/t", allowed)
    if inside:
        places.check(place)
        return
    with pytest.raises(UnsupportedTableError):
        places.check(place)


def test_another_authority_is_another_file_system() -> None:
    places = BlobPlaces.of("hdfs:///db.db/t", None)
    places.check("hdfs:///elsewhere")
    with pytest.raises(UnsupportedTableError):
        places.check("hdfs://another/db.db/t/x")
