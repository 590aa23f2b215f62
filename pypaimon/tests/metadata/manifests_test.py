"""Manifests in bulk: equal to a plain Avro reader on the files of every release; damage is never read over."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pypaimon import Schema
from pypaimon.manifest.schema.manifest_entry import MANIFEST_ENTRY_SCHEMA
from pypaimon.manifest.schema.manifest_file_meta import MANIFEST_FILE_META_SCHEMA

from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.formats.binary_row import decode_rows
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.metadata import manifest_cache, manifest_tables, manifests
from pypaimon.streaming.metadata.data_file_meta import DataFiles
from pypaimon.streaming.metadata.file_paths import FilePaths, merged_changelog_range
from pypaimon.streaming.metadata.manifest_cache import ManifestCache, memory_of
from pypaimon.streaming.metadata.manifest_tables import (
    BOUNDED_SCHEMA,
    BOUNDS,
    ENTRY_SCHEMA,
    FILE_SCHEMA,
    MANIFEST_SCHEMA,
    Parser,
    list_parser,
    manifest_parser,
    together,
)
from pypaimon.streaming.metadata.manifests import ManifestReader, live
from pypaimon.streaming.paimon.internals import DataField, TableSchema
from support.corpus.cases import ARCHIVES, unpack
from support.samples import SOAK, examples, is_drawn, seeded
from support.stores.fault_file_io import FaultFileIO
from support.tables.handles import current_files, write_by_pypaimon
from support.tables.manifest_entries import avro, decoder, entry_record

pytestmark = [pytest.mark.slow, pytest.mark.soak]

__all__ = ["decoder"]

ONE_IN = 1 if SOAK else 20
"""Each manifest and snapshot of the corpus is in the sample of one in so many commits."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def data_files(entries: pa.Table, *arguments: Any) -> list[Any]:
    files = DataFiles(entries, *arguments)
    return files.make(0, len(files))


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store(FaultFileIO(), sleep=lambda _: None)
    yield store
    store.close()


def _manifest_files(table: Path) -> list[Path]:
    return [path for path in sorted(table.glob("manifest/manifest-*")) if "manifest-list" not in path.name]


def _plainly(data: bytes, columns: Any) -> list[dict[str, Any]]:
    def find(record: Any, path: str) -> Any:
        for name in path.split("."):
            record = record.get(name)
        if isinstance(record, datetime):
            return (record - _EPOCH) // timedelta(milliseconds=1)
        return record

    records = fastavro.reader(io.BytesIO(data))
    return [{name: find(record, path) for name, path, _, _ in columns} for record in records]


def _listed(name: str) -> dict[str, Any]:
    stats = {"_MIN_VALUES": bytes(12), "_MAX_VALUES": bytes(12), "_NULL_COUNTS": []}
    counts = {"_NUM_ADDED_FILES": 1, "_NUM_DELETED_FILES": 0, "_SCHEMA_ID": 0}
    return {"_VERSION": 2, "_FILE_NAME": f"manifest of {name}", "_FILE_SIZE": 9, "_PARTITION_STATS": stats, **counts}


def _entries(*records: dict[str, Any]) -> pa.Table:
    return manifest_parser()(avro(MANIFEST_ENTRY_SCHEMA, records))


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("archive", ARCHIVES)
def test_every_manifest_of_the_corpus(archive: str) -> None:
    """A share of them, and as many more as it takes to compare enough entries, whatever is drawn."""
    paths = sorted(unpack(archive).glob("*/wh/d.db/t/manifest/manifest-*"))
    seeded(f"manifests {archive}").shuffle(paths)
    compared = 0
    for number, path in enumerate(paths):
        if number >= len(paths) // ONE_IN and compared > 300:
            break
        data = path.read_bytes()
        is_list = path.name.startswith("manifest-list")
        parse = list_parser() if is_list else manifest_parser()
        columns = manifest_tables._MANIFEST_COLUMNS if is_list else manifest_tables._ENTRY_COLUMNS
        decoded = parse(data)
        assert decoded.schema == (MANIFEST_SCHEMA if is_list else ENTRY_SCHEMA)
        assert decoded.to_pylist() == _plainly(data, columns), path
        if not is_list:
            assert manifest_parser(schema=FILE_SCHEMA)(data).equals(decoded.select(FILE_SCHEMA.names)), path
        compared += decoded.num_rows
    assert compared > 300


@pytest.mark.parametrize("archive", ARCHIVES)
def test_the_state_of_every_snapshot_of_the_corpus(archive: str, store: Store) -> None:
    """Counts are the snapshot's, and every file is where its path says."""
    lost = set()
    readers: dict[Path, ManifestReader] = {}
    for snapshot_file in sorted(unpack(archive).glob("*/wh/d.db/t/snapshot/snapshot-*")):
        table = snapshot_file.parent.parent
        if not is_drawn(f"{table.parts[-4]} {snapshot_file.name}", ONE_IN):
            continue
        try:
            snapshot = json.loads(snapshot_file.read_text())
        except ValueError:
            assert table.parts[-4] == "corrupt_snapshot_file"
            continue
        schema = TableSchema.from_json((table / f"schema/schema-{snapshot['schemaId']}").read_text())
        reader = readers.setdefault(table, ManifestReader(store, str(table)))
        state = [
            reader.manifest_list(snapshot[f"{part}ManifestList"], snapshot.get(f"{part}ManifestListSize"))
            for part in ("base", "delta")
        ]
        entries = live(reader.entries(pa.concat_tables(state)))
        assert sum(entries["row_count"].to_pylist()) == snapshot["totalRecordCount"]
        if snapshot.get("changelogManifestList"):
            changelog = reader.manifest_list(snapshot["changelogManifestList"])
            entries = pa.concat_tables([entries, reader.entries(changelog)])
        for file in data_files(entries, FilePaths.of(str(table), schema), _key_fields(schema)):
            part = merged_changelog_range(file.file_path)
            path = Path(part.path if part else file.file_path)
            if not path.exists():
                lost.add(table.parts[-4])
            elif part:
                assert part.offset + part.length <= path.stat().st_size
    assert lost <= {"lost_data_file"}


def _key_fields(schema: TableSchema) -> list[DataField]:
    fields = {field.name: field for field in schema.fields}
    return [fields[name] for name in schema.primary_keys if name not in schema.partition_keys]


def test_a_table_that_pypaimon_wrote(warehouse: Any, store: Store) -> None:
    columns = pa.schema([("dt", pa.date32()), pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    schema = Schema.from_pyarrow_schema(columns, ["dt"], ["dt", "id"], {"bucket": "2"})
    warehouse.create_table("db.t", schema, False)
    table = warehouse.get_table("db.t")
    for start in (0, 10):
        rows = {"dt": [datetime(2024, 1, 1).date()] * 10, "id": list(range(start, start + 10)), "v": ["x"] * 10}
        write_by_pypaimon(table, pa.table(rows, schema=columns))
    snapshot = table.snapshot_manager().get_latest_snapshot()
    reader = ManifestReader(store, table.table_path)
    lists = [reader.manifest_list(name) for name in (snapshot.base_manifest_list, snapshot.delta_manifest_list)]
    entries = live(reader.entries(pa.concat_tables(lists)))
    for path in _manifest_files(Path(table.table_path)):
        assert manifest_parser()(path.read_bytes()).to_pylist() == _plainly(
            path.read_bytes(), manifest_tables._ENTRY_COLUMNS
        )
    files = data_files(entries, FilePaths.of(table.table_path, table.table_schema), table.trimmed_primary_keys_fields)
    planned = current_files(table)
    assert {file.file_path for file in files} == {file.file_path for file in planned}
    assert {(file.file_name, *file.min_key.values, *file.max_key.values) for file in files} == {
        (file.file_name, *file.min_key.values, *file.max_key.values) for file in planned
    }
    assert [row.to_dict() for row in decode_rows(entries["partition"], table.partition_keys_fields)] == [
        {"dt": datetime(2024, 1, 1).date()}
    ] * len(files)
    assert all(file.creation_time is not None and Path(file.file_path).exists() for file in files)


_OPTIONAL = st.fixed_dictionaries(
    {
        "_CREATION_TIME": st.none() | st.integers(0, 2**40),
        "_DELETE_ROW_COUNT": st.none() | st.integers(0, 2**62),
        "_EMBEDDED_FILE_INDEX": st.none() | st.binary(max_size=5),
        "_FILE_SOURCE": st.sampled_from([None, 0, 1]),
        "_VALUE_STATS_COLS": st.none() | st.lists(st.text(max_size=3), max_size=3),
        "_EXTERNAL_PATH": st.none() | st.text(max_size=3),
        "_FIRST_ROW_ID": st.none() | st.integers(0, 2**62),
        "_WRITE_COLS": st.none() | st.lists(st.text(max_size=3), max_size=3),
        "_WRITE_COLS_SEQUENCES": st.none()
        | st.lists(st.integers(), max_size=3).map(lambda xs: [x % 2**60 for x in xs]),
        "_BUCKET": st.integers(-2, 2**31 - 1),
        "_EXTRA_FILES": st.lists(st.text(max_size=3), max_size=3),
        "_VALUE_STATS": st.fixed_dictionaries(
            {
                "_MIN_VALUES": st.binary(max_size=3),
                "_MAX_VALUES": st.binary(max_size=3),
                "_NULL_COUNTS": st.none() | st.lists(st.none() | st.integers(0, 2**62), max_size=3),
            }
        ),
    }
)


@pytest.mark.usefixtures("decoder")
@given(st.lists(_OPTIONAL, max_size=5))
@settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nulls_and_lists(changes: list[dict[str, Any]]) -> None:
    data = avro(
        MANIFEST_ENTRY_SCHEMA, [entry_record(f"f{i}", **change) for i, change in enumerate(changes)], "zstandard"
    )
    assert manifest_parser()(data).to_pylist() == _plainly(data, manifest_tables._ENTRY_COLUMNS)


def _renamed(schema: Any) -> Any:
    """The same schema with both statistics as references to one named type, which polars does not know."""
    schema = json.loads(json.dumps(schema))
    fields = {field["name"]: field for field in schema["fields"]}["_FILE"]["type"]["fields"]
    named = {field["name"]: field for field in fields}
    named["_VALUE_STATS"]["type"] = named["_KEY_STATS"]["type"]["name"]
    return schema


def _newer(schema: Any) -> Any:
    schema = json.loads(json.dumps(schema))
    new = {"name": "_NEW", "type": ["null", {"type": "map", "values": "string"}], "default": None}
    schema["fields"].append({"name": "_OTHER", "type": ["null", "string"], "default": None})
    schema["fields"][5]["type"]["fields"].insert(3, new)
    return schema


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("change", [lambda schema: ["null", schema], _renamed, _newer])
def test_schemas_of_other_writers(change: Callable[[Any], Any]) -> None:
    """A top-level union (as written from Rust), references to named types, columns of releases to come."""
    records = [entry_record("a", _CREATION_TIME=5), entry_record("b", _LEVEL=3)]
    decoded = manifest_parser()(avro(change(MANIFEST_ENTRY_SCHEMA), records))
    assert decoded.schema == ENTRY_SCHEMA
    assert decoded.to_pylist() == _entries(*records).to_pylist()


@pytest.mark.usefixtures("decoder")
def test_a_column_that_must_be_there() -> None:
    schema = json.loads(json.dumps(MANIFEST_ENTRY_SCHEMA))
    del schema["fields"][3]
    with pytest.raises(ValueError, match="hold no _BUCKET"):
        manifest_parser()(avro(schema, [entry_record("a")]))


@pytest.mark.usefixtures("decoder")
def test_a_column_of_another_type() -> None:
    schema = json.loads(json.dumps(MANIFEST_ENTRY_SCHEMA))
    schema["fields"][3]["type"] = "string"
    with pytest.raises(ValueError, match="another type"):
        manifest_parser()(avro(schema, [entry_record("a", _BUCKET="zero")]))


def test_an_empty_manifest() -> None:
    assert _entries().schema == ENTRY_SCHEMA
    assert list_parser()(avro(MANIFEST_FILE_META_SCHEMA, [])).schema == MANIFEST_SCHEMA


def test_live_files() -> None:
    same: dict[str, Any] = {"_EXTERNAL_PATH": None, "_EMBEDDED_FILE_INDEX": None, "_EXTRA_FILES": ["i", "j"]}
    entries = _entries(
        entry_record("deleted-first", kind=1),
        entry_record("a"),
        entry_record("b", **same),
        entry_record("c"),
        entry_record("deleted-first"),
        entry_record("d"),
        entry_record("b", kind=1, **same),
        entry_record("unknown", kind=1),
    )
    assert live(entries)["file_name"].to_pylist() == ["a", "c", "d"]
    assert live(entries.slice(1, 3))["file_name"].to_pylist() == ["a", "b", "c"]
    assert live(entries.slice(0, 0)).num_rows == 0


@pytest.mark.parametrize(
    "change",
    [
        {"_PARTITION": b"other"},
        {"_BUCKET": 1},
        {"_LEVEL": 5},
        {"_FILE_NAME": "b"},
        {"_EXTRA_FILES": ["index"]},
        {"_EMBEDDED_FILE_INDEX": b""},
        {"_EXTERNAL_PATH": "s3://b/a"},
    ],
)
def test_another_file(change: dict[str, Any]) -> None:
    """A file that was moved to another level, say, is not deleted where it went."""
    assert live(_entries(entry_record("a", kind=1), entry_record("a", **change))).num_rows == 1
    assert live(_entries(entry_record("a", kind=1, **change), entry_record("a", **change))).num_rows == 0


def _written(directory: Path, *counts: int) -> pa.Table:
    """Manifests m0, m1... with so many entries, as rows of a manifest list."""
    (directory / "manifest").mkdir(exist_ok=True)
    for i, count in enumerate(counts):
        data = avro(MANIFEST_ENTRY_SCHEMA, [entry_record(f"m{i}-{k}") for k in range(count)], "zstandard")
        (directory / "manifest" / f"m{i}").write_bytes(data)
    counted = {"num_deleted_files": 0, "file_size": 1000}
    rows = [{"file_name": f"m{i}", "num_added_files": n} | counted for i, n in enumerate(counts)]
    return pa.Table.from_pylist(rows, MANIFEST_SCHEMA)


def test_entries_come_in_the_order_of_the_manifests_and_once_from_the_store(tmp_path: Path, store: Store) -> None:
    listed = _written(tmp_path, 2, 1, 3)
    reader = ManifestReader(store, f"{tmp_path}/")
    assert reader.entries(listed.slice(1, 1)).num_rows == 1
    names = reader.entries(listed.take([2, 1, 0]))["file_name"].to_pylist()
    assert names == ["m2-0", "m2-1", "m2-2", "m1-0", "m0-0", "m0-1"]
    assert sorted(store.file_io.names("read")) == ["m0", "m1", "m2"]
    assert reader.entries(listed.slice(0, 0)).schema == ENTRY_SCHEMA


def test_small_manifests_are_decoded_together_as_if_alone(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = _written(tmp_path, 2, 1, 0, 3)
    sizes: list[int] = []

    def counted(files: Any, parsers: Any) -> list[pa.Table]:
        sizes.append(len(files))
        return together(files, parsers)

    monkeypatch.setattr(manifests, "together", counted)
    reader = ManifestReader(store, str(tmp_path))
    found = reader.entries(listed, FILE_SCHEMA, lambda entries: entries.slice(1))
    assert sizes == [4]
    assert found["file_name"].to_pylist() == ["m0-1", "m3-1", "m3-2"]
    monkeypatch.setattr(manifests, "_DECODED_BYTES", 2000)
    assert reader.entries(listed)["file_name"].to_pylist() == ["m0-0", "m0-1", "m1-0", "m3-0", "m3-1", "m3-2"]
    assert sizes == [4, 2, 2]
    path = tmp_path / "manifest" / "m1"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(CorruptTableError) as raised:
        ManifestReader(store, str(tmp_path)).entries(listed)
    assert raised.value.path == str(path)


@pytest.mark.parametrize("fetched_at_once", [1, 1 << 20])
def test_a_manifest_that_is_listed_twice_is_damage(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, fetched_at_once: int
) -> None:
    listed = _written(tmp_path, 2, 1, 3)
    monkeypatch.setattr(manifests, "_FETCHED_BYTES", fetched_at_once)
    with pytest.raises(CorruptTableError, match="names it twice") as raised:
        ManifestReader(store, str(tmp_path)).entries(listed.take([0, 1, 0]))
    assert raised.value.path == f"{tmp_path}/manifest/m0"


def test_several_manifest_lists_at_once(tmp_path: Path, store: Store) -> None:
    (tmp_path / "manifest").mkdir()
    for name in ("l0", "l1"):
        (tmp_path / "manifest" / name).write_bytes(avro(MANIFEST_FILE_META_SCHEMA, [_listed(name)]))
    reader = ManifestReader(store, str(tmp_path))
    assert reader.manifest_list("l1")["file_name"].to_pylist() == ["manifest of l1"]
    assert [table["file_name"][0].as_py() for table in reader.manifest_lists(["l1", "l0", "l1"])] == [
        "manifest of l1",
        "manifest of l0",
        "manifest of l1",
    ]
    assert store.file_io.names("read") == ["l1", "l0"]


def test_small_lists_are_decoded_together_as_if_alone(tmp_path: Path, store: Store) -> None:
    """Of several writers, one without any manifest, one with many; what is wrong with one is found as if alone."""
    (tmp_path / "manifest").mkdir()
    older = json.loads(json.dumps(MANIFEST_FILE_META_SCHEMA))
    older["fields"] = [field for field in older["fields"] if field["name"] not in ("_MIN_BUCKET", "_MAX_BUCKET")]
    counts = {"l0": 1, "l1": 0, "l2": 3, "l3": 120, "l4": 1}
    for name, count in counts.items():
        schema = older if name in ("l2", "l4") else MANIFEST_FILE_META_SCHEMA
        content = avro(schema, [_listed(f"{name}-{number}") for number in range(count)])
        (tmp_path / "manifest" / name).write_bytes(content)
    found = ManifestReader(store, str(tmp_path)).manifest_lists(list(counts))
    assert [table.num_rows for table in found] == list(counts.values())
    for name, table in zip(counts, found, strict=True):
        alone = list_parser()((tmp_path / "manifest" / name).read_bytes())
        assert table.schema == alone.schema
        assert table.to_pylist() == alone.to_pylist()
    (tmp_path / "manifest" / "l2").write_bytes(content[:-3])
    with pytest.raises(CorruptTableError) as raised:
        ManifestReader(store, str(tmp_path)).manifest_lists(list(counts))
    assert raised.value.path == f"{tmp_path}/manifest/l2"


@pytest.mark.parametrize("field", ["_FILE_SIZE", "_ROW_COUNT"])
def test_a_size_below_zero_is_damage(decoder: None, field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} is negative"):
        _entries(entry_record("a"), entry_record("b", **{field: -1}))
    if field == "_FILE_SIZE":
        with pytest.raises(ValueError, match="_NUM_ADDED_FILES is negative"):
            list_parser()(avro(MANIFEST_FILE_META_SCHEMA, [_listed("l") | {"_NUM_ADDED_FILES": -1}]))


def test_large_manifests_are_let_go_before_others_are_fetched(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = _written(tmp_path, 2, 1, 3)
    monkeypatch.setattr(manifests, "_FETCHED_BYTES", 2000)
    fetched: list[int] = []

    def not_the_first(entries: pa.Table) -> pa.Table:
        fetched.append(len(store.file_io.names("read")))
        return entries.slice(1)

    found = ManifestReader(store, str(tmp_path)).entries(listed, FILE_SCHEMA, not_the_first)
    assert fetched == [2, 2, 3]
    assert found.schema == FILE_SCHEMA
    assert found["file_name"].to_pylist() == ["m0-1", "m2-1", "m2-2"]


def test_statistics_are_decoded_where_they_are_wanted(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (manifests, manifest_cache):
        monkeypatch.setattr(module, "SMALL_BYTES", 0)
    listed = _written(tmp_path, 2, 1)
    reader = ManifestReader(store, str(tmp_path))
    files = reader.entries(listed, FILE_SCHEMA)
    whole = reader.entries(listed)
    assert (files.schema, whole.schema) == (FILE_SCHEMA, ENTRY_SCHEMA)
    assert whole["value_min"].null_count == 0
    assert reader.entries(listed, FILE_SCHEMA).equals(files)
    assert files.equals(whole.select(FILE_SCHEMA.names))
    assert sorted(store.file_io.names("read")) == ["m0", "m0", "m1", "m1"]


@pytest.mark.parametrize("small", [0, 1 << 20], ids=["decoded", "as stored"])
def test_the_cache_is_bounded(tmp_path: Path, store: Store, small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (manifests, manifest_cache):
        monkeypatch.setattr(module, "SMALL_BYTES", small)
    listed = _written(tmp_path, 400, 400, 400)
    size = small or memory_of(ManifestReader(store, str(tmp_path)).entries(listed.slice(0, 1)))
    cache = ManifestCache(2 * size + size // 2)
    reader = ManifestReader(store, str(tmp_path), cache=cache)
    for _ in range(2):
        reader.entries(listed)
        assert size <= cache.held_bytes <= 2 * size + size // 2
    reader.entries(listed.slice(2, 1))
    assert store.file_io.names("read").count("m2") < 3
    tiny = ManifestReader(store, str(tmp_path), cache=ManifestCache(10))
    assert tiny.entries(listed).num_rows == 1200


def test_a_writer_in_the_middle(tmp_path: Path, store: Store) -> None:
    """A file that is damaged at first is read again; so is one that holds less than its list says."""
    listed = _written(tmp_path, 2, 3)
    path = tmp_path / "manifest" / "m0"
    early = {"m0": path.read_bytes()[:-3], "m1": path.read_bytes()}
    store.file_io.wherever(lambda call: early.pop(call.name, None) or call.answer())
    assert ManifestReader(store, str(tmp_path)).entries(listed).num_rows == 5
    assert sorted(store.file_io.names("read")) == ["m0", "m0", "m1", "m1"]


def test_a_missing_file(tmp_path: Path, store: Store) -> None:
    listed = _written(tmp_path, 2, 3)
    (tmp_path / "manifest" / "m1").unlink()
    reader = ManifestReader(store, str(tmp_path))
    with pytest.raises(FileNotFoundError, match="manifest/m1"):
        reader.entries(listed)
    with pytest.raises(FileNotFoundError):
        reader.manifest_list("none")


def test_a_damaged_file(tmp_path: Path, store: Store) -> None:
    listed = _written(tmp_path, 2)
    path = tmp_path / "manifest" / "m0"
    path.write_bytes(path.read_bytes()[:-3])
    reader = ManifestReader(store, str(tmp_path))
    with pytest.raises(CorruptTableError, match="ends in the middle") as raised:
        reader.entries(listed)
    assert raised.value.path == str(path)
    with pytest.raises(CorruptTableError, match="bytes, its snapshot says 17"):
        reader.manifest_list("m0", 17)


@pytest.mark.usefixtures("decoder")
def test_bounds_of_orc_files_are_decoded_with_the_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each manifest is decoded once, whichever files it names."""
    of_orc = avro(MANIFEST_ENTRY_SCHEMA, [entry_record("a.orc"), entry_record("b.parquet")])
    others = avro(MANIFEST_ENTRY_SCHEMA, [entry_record("c.parquet"), entry_record("d.avro")])
    taken = []
    plainly = Parser.split_records
    monkeypatch.setattr(Parser, "split_records", lambda self, data: taken.append(data) or plainly(self, data))
    files = [of_orc, others, avro(MANIFEST_ENTRY_SCHEMA, [])]
    found = together(files, [manifest_parser(None, BOUNDED_SCHEMA) for _ in files])
    assert taken == files
    assert {table.schema for table in found} == {BOUNDED_SCHEMA}
    assert found[0].equals(manifest_parser(None, BOUNDED_SCHEMA)(of_orc))
    assert found[0]["value_min"].to_pylist() == [bytes(12)] * 2
    assert [found[1][name].null_count for name in BOUNDS] == [2] * len(BOUNDS)
