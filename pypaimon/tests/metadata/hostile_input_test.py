"""Files that are damaged or mean harm: a typed error in bounded time and memory, never fewer rows in silence."""

from __future__ import annotations

import bz2
import contextlib
import io
import json
import logging
import lzma
import pickle
import traceback
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pypaimon.streaming import (
    ConsumerManager,
    CorruptTableError,
    PaimonStreamError,
    Position,
    SnapshotManager,
    StreamConfigError,
    StreamReadBuilder,
)
from pypaimon.streaming.consumers.consumer_manager import Consumer
from pypaimon.streaming.files import deletion_vectors
from pypaimon.streaming.formats import avro_container
from pypaimon.streaming.metadata import index_manifests
from pypaimon.streaming.metadata.file_paths import check_file_name
from pypaimon.streaming.metadata.manifest_tables import list_parser, manifest_parser
from pypaimon.streaming.metadata.snapshot_files import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.paimon.internals import DeletionFile
from support.samples import SOAK
from support.stores.s3_server import ACCESS_KEY, SECRET_KEY, S3Server
from support.tables.crafted_files import avro_long, avro_text, container
from support.tables.handles import create_table
from support.tables.streamed_table import Table

pytestmark = [pytest.mark.server, pytest.mark.soak]

DEEP = b'{"a":' * 100_000
PATIENT = settings(
    deadline=None, max_examples=1200 if SOAK else 25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
STREAMS = settings(PATIENT, max_examples=500 if SOAK else 12)


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """A file cut off, with some bytes changed, with a piece that is not its own, or none of it."""
    how = draw(st.sampled_from(["cut", "flip", "insert", "random", "repeat"]))
    offsets = st.integers(0, max(len(data) - 1, 0))
    if how == "cut":
        return data[: draw(offsets)]
    if how == "insert":
        offset = draw(offsets)
        return data[:offset] + draw(st.binary(min_size=1, max_size=12)) + data[offset:]
    if how == "random":
        return data[: draw(st.integers(0, 8))] + draw(st.binary(max_size=300))
    if how == "repeat":
        first, last = sorted((draw(offsets), draw(offsets)))
        return data[:last] + data[first:]
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        changed[draw(offsets)] = draw(st.integers(0, 255))
    return bytes(changed)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Three snapshots of three rows each, in two buckets."""
    table = Table(tmp_path_factory.mktemp("hostile") / "w", bucket="2", bucket_key="k")
    for number in range(1, 4):
        table.commit(range(10 * number, 10 * number + 3))
    return table


EXPECTED = [(snapshot, sorted(range(10 * snapshot, 10 * snapshot + 3))) for snapshot in (1, 2, 3)]


def read_all(builder: StreamReadBuilder) -> list[tuple[int, list[int | None]]]:
    """All keys from the beginning; None where the file has lost its column's name."""
    builder.with_start("earliest").with_end(snapshot_id=3)
    read, scan = builder.new_read(), builder.new_streaming_scan()
    with scan:
        return [
            (plan.snapshot_id, sorted(read.to_arrow(plan.splits())["k"].to_pylist(), key=str))
            for plan in scan.stream_sync()
        ]


# ---- each kind of file, as bytes ----

INDEX_MANIFEST = {
    "type": "record",
    "name": "entry",
    "fields": [
        {"name": "_KIND", "type": "int"},
        {"name": "_PARTITION", "type": "bytes"},
        {"name": "_BUCKET", "type": "int"},
        {"name": "_INDEX_TYPE", "type": "string"},
        {"name": "_FILE_NAME", "type": "string"},
        {"name": "_FILE_SIZE", "type": "long"},
        {"name": "_ROW_COUNT", "type": "long"},
    ],
}
INDEX_RECORD = {
    "_KIND": 0,
    "_PARTITION": b"",
    "_BUCKET": 0,
    "_INDEX_TYPE": "HASH",
    "_FILE_NAME": "index-1",
    "_FILE_SIZE": 1,
    "_ROW_COUNT": 1,
}


def avro(schema: dict[str, Any], records: list[Any], codec: str = "null") -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, schema, records, codec)
    return file.getvalue()


PARSERS: dict[str, Callable[[bytes], Any]] = {
    "snapshot": Snapshot.from_json,
    "manifest-list": list_parser(),
    "manifest": manifest_parser(),
    "index-manifest": index_manifests.parse_index_manifest,
    "consumer": Consumer.from_json,
}


def example(table: Table, kind: str) -> bytes:
    if kind == "index-manifest":
        return avro(INDEX_MANIFEST, [INDEX_RECORD] * 3)
    if kind == "consumer":
        return Consumer(7, "owner").to_json().encode()
    if kind == "snapshot":
        return table.snapshot_path(2).read_bytes()
    paths = (table.path / "manifest").glob("manifest-list-*" if kind == "manifest-list" else "manifest-[!l]*")
    return max((path.read_bytes() for path in paths), key=len)


@pytest.mark.parametrize("kind", PARSERS)
@given(data=st.data())
@PATIENT
def test_whatever_a_file_holds_it_is_decoded_or_refused(table: Table, kind: str, data: st.DataObject) -> None:
    # The store makes a CorruptTableError of these.
    with contextlib.suppress(ValueError, RecursionError):
        PARSERS[kind](data.draw(damaged(example(table, kind))))


@pytest.mark.parametrize("codec", ["null", "deflate"])
@given(data=st.data())
@PATIENT
def test_many_entries_are_decoded_or_refused(codec: str, data: st.DataObject) -> None:
    """From a hundred entries on, polars decodes them, which must not end the process."""
    good = avro(INDEX_MANIFEST, [{**INDEX_RECORD, "_BUCKET": number} for number in range(150)], codec)
    try:
        container = avro_container.parse(data.draw(damaged(good)))
        avro_container.to_arrow(container)
    except ValueError:
        pass


# ---- whole streams ----

FILES = ["snapshot/snapshot-2", "manifest/manifest-list-*-1", "manifest/manifest-list-*-0", "manifest/manifest-*-0"]


@pytest.mark.parametrize("pattern", [*FILES, "bucket-*/data-*.parquet", "schema/schema-0"])
@given(data=st.data())
@STREAMS
def test_a_stream_over_a_damaged_file_is_exact_or_fails(table: Table, pattern: str, data: st.DataObject) -> None:
    paths = sorted(path for path in table.path.glob(pattern) if "list" in pattern or "list" not in path.name)
    path = data.draw(st.sampled_from(paths))
    good = path.read_bytes()
    bad = data.draw(damaged(good).filter(lambda found: found != good))
    builder = table.builder()
    path.write_bytes(bad)
    try:
        found = read_all(builder)
    except PaimonStreamError:
        pass
    else:
        # A change that no checksum covers may alter a value; rows do not vanish.
        assert [len(keys) for _, keys in found] == [len(keys) for _, keys in EXPECTED]
    finally:
        path.write_bytes(good)


# ---- files that mean harm ----

ITEMS = {"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}]}
EMPTY = {"type": "record", "name": "r", "fields": []}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (container(EMPTY, 1 << 60, b""), "announces"),
        (container(EMPTY, -1, b""), "announces"),
        (container(ITEMS, 1, avro_long(1 << 60) + avro_long(0)), "without a size"),
        (container("string", 1, avro_text(DEEP)).replace(b'"string"', b"[" * 8, 1), "."),
    ],
)
def test_a_few_bytes_do_not_stand_for_any_number_of_records(data: bytes, message: str) -> None:
    for parse in (manifest_parser(), list_parser(), index_manifests.parse_index_manifest):
        with pytest.raises(ValueError, match=message):
            parse(data)


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "deflate": lambda data: zlib.compress(data)[2:-4],
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstandard": zstandard.ZstdCompressor().compress,
    "snappy": lambda data: pa.compress(data, "snappy", asbytes=True) + zlib.crc32(data).to_bytes(4, "big"),
}


@pytest.mark.parametrize("codec", COMPRESSORS)
def test_a_block_that_grows_without_end_is_refused_in_bounded_memory(
    monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    most, size = 1 << 18, 1 << (28 if codec == "zstandard" else 25)
    monkeypatch.setattr(avro_container, "_MOST_BYTES", most)
    fitting = container("string", 1, COMPRESSORS[codec](bytes(most)), codec.encode())
    assert len(avro_container.parse(fitting).records) == most
    too_much = container("string", 1, COMPRESSORS[codec](bytes(size)), codec.encode())
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="more than"):
            avro_container.parse(too_much)
        assert tracemalloc.get_traced_memory()[1] < size * 0.75
    finally:
        tracemalloc.stop()


def test_json_that_is_nested_without_end_is_damage(table: Table) -> None:
    path = table.snapshot_path(2)
    good, builder = path.read_bytes(), table.builder()
    path.write_bytes(DEEP)
    try:
        with pytest.raises(CorruptTableError, match="snapshot-2"):
            read_all(builder)
    finally:
        path.write_bytes(good)
    with pytest.raises(StreamConfigError, match="not a position"):
        Position.from_json(DEEP.decode())


def test_a_snapshot_in_the_place_of_another_is_damage(table: Table) -> None:
    path = table.snapshot_path(2)
    good, builder = path.read_bytes(), table.builder()
    path.write_bytes(table.snapshot_path(1).read_bytes())
    try:
        with pytest.raises(CorruptTableError, match="says that it is snapshot 1"):
            read_all(builder)
    finally:
        path.write_bytes(good)


def test_hints_are_only_hints_whatever_they_hold(table: Table) -> None:
    latest = table.path / "snapshot" / "LATEST"
    good = latest.read_bytes()
    try:
        for bad in (b"", b"x", b"-1", b"9" * 10_000, b"\xff\xfe", "٣".encode(), b"99", DEEP):
            latest.write_bytes(bad)
            assert SnapshotManager(table.handle().file_io, str(table.path)).latest_id() == 3
    finally:
        latest.write_bytes(good)


# ---- names that leave the directory ----

OUTSIDE = ["../../secret", "..", "/etc/passwd", "a/b", "a\\b", "", "..%2F..%2fsecret", "a%5Cb", "%2e%2E", ".%2e"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_file_name_leaves_the_table(table: Table, name: str) -> None:
    with pytest.raises(ValueError, match="not a valid file name"):
        check_file_name(name)
    snapshot = table.snapshot(2)
    for field in ("baseManifestList", "deltaManifestList", "changelogManifestList", "indexManifest"):
        with pytest.raises(ValueError, match="not a valid file name"):
            Snapshot.from_json(json.dumps({**snapshot, field: name}))
    for kind in ("manifest", "manifest-list"):
        good = avro_container.parse(example(table, kind))
        schema = json.loads(good.schema)
        records = avro_container.to_records(good)
        target = records[0]["_FILE"] if kind == "manifest" else records[0]
        target["_FILE_NAME"] = name
        with pytest.raises(ValueError, match="not a valid file name"):
            PARSERS[kind](avro(schema, records))
    with pytest.raises(ValueError, match="not a valid file name"):
        index_manifests.parse_index_manifest(avro(INDEX_MANIFEST, [{**INDEX_RECORD, "_FILE_NAME": name}]))


@pytest.mark.parametrize("name", ["../../other", "x/../../..", "..\\..\\x", "..", "%2e%2E/x", "x%2F..%2f.."])
def test_no_branch_or_tag_leaves_the_table(table: Table, name: str) -> None:
    for refused in (
        lambda: SnapshotManager(table.handle().file_io, str(table.path), name).latest_id(),
        lambda: ConsumerManager(table.handle().file_io, str(table.path), name).names(),
        lambda: TableDirectory.of(table.handle()).tag(name),
    ):
        with pytest.raises(StreamConfigError, match="would leave"):
            refused()


@pytest.mark.parametrize("name", ["../../other", "..", "a/b", "a\\b", "a\0b", "a\nb"])
def test_no_consumer_or_member_leaves_its_directory(table: Table, name: str) -> None:
    with pytest.raises(StreamConfigError):
        table.builder().with_consumer_id(name).new_streaming_scan()
    with pytest.raises(StreamConfigError):
        table.builder().with_consumer_id("c", member=name).with_buckets([0]).new_streaming_scan()
    assert not (table.path / "consumer").exists()


def test_a_deletion_vector_outside_of_its_file_is_damage() -> None:
    for offset in (-4, 1 << 40):
        with pytest.raises(ValueError, match="deletion vector"):
            deletion_vectors.parse(bytes(64), DeletionFile("x", offset, 4, 1))


# ---- what nobody may see ----


def test_no_secret_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    """Options of the catalog hold keys; positions, plans and splits travel, errors and logs are kept."""
    server = S3Server()
    server.start()
    with caplog.at_level(logging.DEBUG):
        catalog = server.catalog("secrets")
        catalog.create_database("db", True)
        columns = pa.schema([("k", pa.int64())])
        table = create_table(catalog, "t", columns)
        write, commit = (builder := table.new_batch_write_builder()).new_write(), builder.new_commit()
        write.write_arrow(pa.table({"k": [1]}))
        commit.commit(write.prepare_commit())
        builder = StreamReadBuilder(table).with_start("earliest").with_consumer_id("c")
        read, scan = builder.new_read(), builder.new_streaming_scan()
        plan = scan.plan()
        assert plan is not None and read.to_arrow(plan.splits()).num_rows == 1
        scan.commit(plan)
        shown = [builder, read, scan, plan, plan.splits(), plan.position, plan.schema, scan.metrics, scan.lag()]
        shown += [
            scan.stream(),
            TableDirectory.of(table),
            TableDirectory.of(table).store,
            TableDirectory.of(table).snapshots,
        ]
        told = [*map(repr, shown), *map(str, shown)]
        told += [pickle.dumps(each).decode("latin-1") for each in (plan, plan.splits(), plan.position, scan.lag())]
        told.append(plan.position.to_json())
        table.table_path = "s3://no-such-bucket/t"
        for path in ("s3://no-such-bucket/t/x", "s3://lake/secrets/nothing"):
            with pytest.raises((PaimonStreamError, FileNotFoundError)) as raised:
                TableDirectory.of(table).store.read(path)
            told += ["".join(traceback.format_exception(raised.value)), repr(raised.value)]
        scan.close()
        server.stop()
    told += [record.getMessage() for record in caplog.records]
    for secret in (SECRET_KEY, ACCESS_KEY):
        assert not [text for text in told if secret in text]


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_a_data_file_with_fewer_rows_than_its_manifest_says_is_damage(tmp_path: Path, file_format: str) -> None:
    """Also one that is whole by itself: another one, or an Avro file that ends between two blocks."""
    table = Table(tmp_path / "w", file__format=file_format)
    for count in (20, 10):
        table.commit(range(count))
    larger, smaller = sorted(table.path.glob(f"bucket-*/*.{file_format}"), key=lambda path: -path.stat().st_size)
    replacements = [smaller.read_bytes()]
    if file_format == "avro":
        good = larger.read_bytes()
        sync = good[-16:]
        replacements.append(good[: good.index(sync) + len(sync)])
    for content in replacements:
        builder = table.builder().with_start("earliest")
        read, scan = builder.new_read(), builder.new_streaming_scan()
        larger.write_bytes(content)
        with scan, pytest.raises(CorruptTableError, match="its manifest says 20"):
            available = scan.plan()
            assert available is not None
            read.to_arrow(available.splits())
