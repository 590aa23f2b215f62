"""Tables for measurements, and streams of them: ours and those of pypaimon."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pypaimon.catalog.catalog_factory import CatalogFactory
from pypaimon.schema.schema import Schema

from pypaimon.streaming.install import paimon_class

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("amount", pa.float64()),
        ("number", pa.int32()),
        ("name", pa.string()),
        ("day", pa.date32()),
    ]
)

PeerBuilder = paimon_class("pypaimon.read.stream_read_builder")
"""pypaimon's own: under its name programs find ours."""
_PER_MANIFEST = 10_000
_SPREAD = 0x9E3779B97F4A7C15F39CC0605CEDC835


def catalog(warehouse: Path | str, **options: str) -> Any:
    """A filesystem catalog with a database `db`."""
    made = CatalogFactory.create({"warehouse": str(warehouse), **options})
    made.create_database("db", True)
    return made


def create(catalog: Any, name: str, schema: pa.Schema = SCHEMA, **arguments: Any) -> Any:
    """A new table `db.<name>`."""
    catalog.create_table(f"db.{name}", Schema.from_pyarrow_schema(schema, **arguments), False)
    return catalog.get_table(f"db.{name}")


def some_rows(count: int, seed: int = 0, spread: int | None = None) -> pa.Table:
    """Rows in key order: all keys up to `count`, or `count` different ones below `spread`."""
    rng = np.random.default_rng(seed)
    keys = np.arange(count) if spread is None else np.sort(rng.choice(spread, count, replace=False))
    return pa.table(
        {
            "id": keys,
            "amount": rng.random(count),
            "number": rng.integers(0, 1 << 30, count, dtype=np.int32),
            "name": pa.array(np.char.add("name-", rng.integers(0, 10_000, count).astype(str))),
            "day": pa.array(rng.integers(10_000, 20_000, count, dtype=np.int32)).cast(pa.date32()),
        },
        schema=SCHEMA,
    )


def commit(table: Any, rows: pa.Table) -> None:
    """One commit by pypaimon."""
    builder = table.new_batch_write_builder()
    writer, committer = builder.new_write(), builder.new_commit()
    writer.write_arrow(rows)
    committer.commit(writer.prepare_commit())
    writer.close()
    committer.close()


def add_compactions(table: Any, count: int) -> None:
    """Append COMPACT snapshots that change nothing."""
    directory = Path(str(table.table_path)) / "snapshot"
    latest = max(int(path.name.removeprefix("snapshot-")) for path in directory.glob("snapshot-*"))
    last = json.loads((directory / f"snapshot-{latest}").read_text())
    for number in range(latest + 1, latest + count + 1):
        snapshot = last | {"id": number, "commitKind": "COMPACT", "deltaRecordCount": 0}
        (directory / f"snapshot-{number}").write_text(json.dumps(snapshot))
    (directory / "LATEST").write_text(str(latest + count))


def multiply_commits(table: Any, count: int) -> None:
    """Append copies of the latest snapshot, each with its own list, manifest and file."""
    home = Path(str(table.table_path))
    path = max((home / "snapshot").glob("snapshot-*"), key=lambda each: int(each.name.removeprefix("snapshot-")))
    latest = json.loads(path.read_text())
    lists, list_schema = _records(home / "manifest" / latest["deltaManifestList"])
    entries, entry_schema = _records(home / "manifest" / lists[0]["_FILE_NAME"])
    (data,) = home.rglob(entries[0]["_FILE"]["_FILE_NAME"])
    for number in range(1, count + 1):
        name = f"data-{number:08d}-0.parquet"
        shutil.copyfile(data, data.with_name(name))
        entry = entries[0] | {"_FILE": entries[0]["_FILE"] | {"_FILE_NAME": name}}
        size = _write(home / "manifest" / f"manifest-{number}", entry_schema, [entry])
        manifest = lists[0] | {"_FILE_NAME": f"manifest-{number}", "_FILE_SIZE": size}
        size = _write(home / "manifest" / f"manifest-list-{number}", list_schema, [manifest])
        snapshot = latest | {
            "id": latest["id"] + number,
            "deltaManifestList": f"manifest-list-{number}",
            "deltaManifestListSize": size,
            "totalRecordCount": latest["totalRecordCount"] + number * latest["deltaRecordCount"],
            "timeMillis": latest["timeMillis"] + number,
        }
        path.with_name(f"snapshot-{snapshot['id']}").write_text(json.dumps(snapshot))
    (home / "snapshot" / "LATEST").write_text(str(latest["id"] + count))


def multiply_files(table: Any, count: int) -> None:
    """Make the latest snapshot of a table with one file hold this many copies of it."""
    home = Path(str(table.table_path))
    path = max((home / "snapshot").glob("snapshot-*"))
    snapshot = json.loads(path.read_text())
    lists, list_schema = _records(home / "manifest" / snapshot["deltaManifestList"])
    entries, entry_schema = _records(home / "manifest" / lists[0]["_FILE_NAME"])
    (data,) = home.rglob(entries[0]["_FILE"]["_FILE_NAME"])
    names = [f"data-{number:08d}-0.parquet" for number in range(count)]
    for name in names:
        shutil.copyfile(data, data.with_name(name))
    records = [entries[0] | {"_FILE": entries[0]["_FILE"] | {"_FILE_NAME": name}} for name in names]
    size = _write(home / "manifest" / lists[0]["_FILE_NAME"], entry_schema, records)
    changed = lists[0] | {"_FILE_SIZE": size, "_NUM_ADDED_FILES": count}
    size = _write(home / "manifest" / snapshot["deltaManifestList"], list_schema, [changed])
    counts = {"deltaManifestListSize": size, "totalRecordCount": count, "deltaRecordCount": count}
    path.write_text(json.dumps(snapshot | counts))


def multiply_entries(table: Any, count: int, partitions: int = 100, buckets: int = 1) -> None:
    """Make the one file of a table into `count` entries (metadata only).

    They are in this many partitions (of an INT) and buckets; neighbours in the manifests are of different ones.
    """
    home = Path(str(table.table_path))
    path = max((home / "snapshot").glob("snapshot-*"))
    snapshot = json.loads(path.read_text())
    lists, list_schema = _records(home / "manifest" / snapshot["deltaManifestList"])
    entries, entry_schema = _records(home / "manifest" / lists[0]["_FILE_NAME"])
    rows = [_int_row(number) for number in range(partitions)]
    made = []
    for start in range(0, count, _PER_MANIFEST):
        numbers = range(start, min(count, start + _PER_MANIFEST))
        records = (_entry(entries[0], number, rows, buckets) for number in numbers)
        name = f"manifest-many-{start}"
        size = _write(home / "manifest" / name, entry_schema, records)
        stats = {"_MIN_VALUES": rows[0], "_MAX_VALUES": rows[-1], "_NULL_COUNTS": [0]}
        counts = {"_FILE_NAME": name, "_FILE_SIZE": size, "_NUM_ADDED_FILES": len(numbers), "_PARTITION_STATS": stats}
        made.append(lists[0] | counts | {"_MIN_BUCKET": 0, "_MAX_BUCKET": buckets - 1})
    size = _write(home / "manifest" / "manifest-list-many", list_schema, made)
    snapshot |= {"baseManifestList": "manifest-list-many", "baseManifestListSize": size}
    empty = _write(home / "manifest" / "manifest-list-none", list_schema, [])
    snapshot |= {"deltaManifestList": "manifest-list-none", "deltaManifestListSize": empty}
    # As of a table that was copied: in the first commit of any other all records are new, and its base is not read.
    snapshot |= {"totalRecordCount": count, "deltaRecordCount": 0}
    path.write_text(json.dumps(snapshot))


def delete_entries(table: Any, count: int) -> None:
    """Append a snapshot that deletes this many entries of a table after `multiply_entries` (metadata only)."""
    home = Path(str(table.table_path))
    path = max((home / "snapshot").glob("snapshot-*"))
    before = json.loads(path.read_text())
    lists, list_schema = _records(home / "manifest" / before["baseManifestList"])
    made = []
    for start in range(0, count, _PER_MANIFEST):
        listed = lists[start // _PER_MANIFEST]
        entries, entry_schema = _records(home / "manifest" / listed["_FILE_NAME"])
        deleted = [entry | {"_KIND": 1} for entry in entries[: count - start]]
        name = f"manifest-deleted-{start}"
        size = _write(home / "manifest" / name, entry_schema, deleted)
        counts = {"_NUM_ADDED_FILES": 0, "_NUM_DELETED_FILES": len(deleted)}
        made.append(listed | counts | {"_FILE_NAME": name, "_FILE_SIZE": size})
    size = _write(home / "manifest" / "manifest-list-deleted", list_schema, made)
    after = before | {"id": before["id"] + 1, "commitKind": "COMPACT", "timeMillis": before["timeMillis"] + 1}
    after |= {"deltaManifestList": "manifest-list-deleted", "deltaManifestListSize": size}
    path.with_name(f"snapshot-{after['id']}").write_text(json.dumps(after))
    (home / "snapshot" / "LATEST").write_text(str(after["id"]))


def multiply_rows(table: Any, copies: int, spread: int) -> None:
    """Multiply the rows of each file of a table of `SCHEMA`, in key order: copies with ids `spread` apart."""
    home = Path(str(table.table_path))
    for path in (home / "bucket-0").glob("*.parquet"):
        rows = pq.read_table(path)
        with pq.ParquetWriter(path, rows.schema, compression="zstd") as writer:
            for number in range(copies):
                writer.write_table(_moved(rows, number * spread))
    for path in (home / "manifest").glob("manifest-*-[0-9]"):
        if not path.name.startswith("manifest-list"):
            entries, schema = _records(path)
            for entry in entries:
                entry["_FILE"]["_ROW_COUNT"] *= copies
            _write(path, schema, entries)


def _moved(rows: pa.Table, by: int) -> pa.Table:
    for name in ("_KEY_id", "id"):
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, rows.schema.field(index), pc.add(rows[name], by))
    return rows


def _entry(template: dict[str, Any], number: int, partitions: list[bytes], buckets: int) -> dict[str, Any]:
    # Names are as long and as little alike as those of Paimon's files.
    name = f"data-{uuid.UUID(int=number * _SPREAD % 2**128)}-0.parquet"
    made = template | {
        "_FILE": template["_FILE"] | {"_FILE_NAME": name},
        "_PARTITION": partitions[number % len(partitions)],
    }
    if buckets > 1:
        made |= {"_BUCKET": number // len(partitions) % buckets, "_TOTAL_BUCKETS": buckets}
    return made


def _int_row(number: int) -> bytes:
    return (1).to_bytes(4, "big") + bytes(8) + number.to_bytes(4, "little") + bytes(4)


def _records(path: Path) -> tuple[list[dict[str, Any]], Any]:
    reader = fastavro.reader(io.BytesIO(path.read_bytes()))
    return [record for record in reader if isinstance(record, dict)], reader.writer_schema


def _write(path: Path, schema: Any, records: Iterable[dict[str, Any]]) -> int:
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec="zstandard")
    path.write_bytes(out.getvalue())
    return len(out.getvalue())


class SlowFileIO:
    """A FileIO whose every request takes a while, as those to a store do."""

    def __init__(self, file_io: Any, seconds: float) -> None:
        self._file_io = file_io
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._file_io, name)
        return self._slow(inner) if name in _REQUESTS else inner

    def _slow(self, request: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            time.sleep(self._seconds)
            return request(*args, **kwargs)

        return run

    def read_file_utf8(self, path: str) -> str:
        """As pypaimon's FileIO: by one request."""
        with self.new_input_stream(path) as stream:
            return str(stream.read().decode())


_REQUESTS = ("new_input_stream", "exists", "list_status", "get_file_status", "get_file_size", "delete")


def slowed(catalog: Any, name: str, milliseconds: float) -> Any:
    """A table handle whose every request takes so long."""
    table = catalog.get_table(f"db.{name}")
    table.file_io = SlowFileIO(table.file_io, milliseconds / 1000)
    return table


@contextmanager
def peer_plans(
    table: Any, next_snapshot: int | None = None, diff_threshold: int = 1 << 30
) -> Iterator[Callable[[], Any]]:
    """A function that gives the next plan of pypaimon's own stream; each snapshot is replayed unless said otherwise."""
    scan = PeerBuilder(table).with_poll_interval_ms(1).new_streaming_scan()
    scan._diff_threshold = diff_threshold
    scan.next_snapshot_id = next_snapshot
    loop = asyncio.new_event_loop()
    stream = scan.stream()
    try:
        yield lambda: loop.run_until_complete(stream.__anext__())
    finally:
        loop.run_until_complete(stream.aclose())
        loop.close()
