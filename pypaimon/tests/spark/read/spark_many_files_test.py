"""A first batch of 100,000 files: small offsets, a bounded number of tasks, memory in proportion to what is planned."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import fastavro
import pytest

from support.samples import SOAK
from support.spark.queries import options
from support.tables.streamed_table import Table

pytestmark = [pytest.mark.slow, pytest.mark.soak]

FILES, MANIFESTS = 100_000 if SOAK else 40_000, 10
CHILD = """
import json, pickle, resource, sys
from pypaimon.spark.source import PaimonDataSource

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

source = PaimonDataSource(json.loads(sys.argv[1]))
reader = source.streamReader(source.schema())
start, batches = reader.initialOffset(), []
before = peak()
while len(batches) < int(sys.argv[2]):
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    tasks = reader.partitions(start, end)
    files = [file.file_name for task in tasks for part in task.parts for file in part.split.files]
    sizes = [len(pickle.dumps(task)) for task in tasks]
    batches.append((len(json.dumps(end)), len(set(files)), len(sizes), max(sizes), peak() - before))
    start = end
print(json.dumps(batches))
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """An append table whose one snapshot has so many files of 10 bytes, as its manifests say; none of them is there."""
    table = Table(tmp_path_factory.mktemp("warehouse")).commit_each([1])
    home = table.path / "manifest"
    path = table.path / "snapshot" / "snapshot-1"
    snapshot = json.loads(path.read_text())
    (of_list,), list_schema = records(home / snapshot["deltaManifestList"])
    (entry,), schema = records(home / of_list["_FILE_NAME"])
    listed = []
    for number in range(MANIFESTS):
        names = [f"data-{number}-{index}-0.parquet" for index in range(FILES // MANIFESTS)]
        found = [entry | {"_FILE": entry["_FILE"] | {"_FILE_NAME": name, "_FILE_SIZE": 10}} for name in names]
        size = write(home / f"manifest-crafted-{number}", schema, found)
        counts = {"_FILE_SIZE": size, "_NUM_ADDED_FILES": len(found), "_NUM_DELETED_FILES": 0}
        listed.append(of_list | {"_FILE_NAME": f"manifest-crafted-{number}"} | counts)
    of_size = write(home / "manifest-list-crafted", list_schema, listed)
    snapshot |= {"deltaManifestList": "manifest-list-crafted", "deltaManifestListSize": of_size}
    path.write_text(json.dumps(snapshot))
    return table


def records(path: Path) -> tuple[list[Any], Any]:
    reader = fastavro.reader(io.BytesIO(path.read_bytes()))
    return list(reader), reader.writer_schema


def write(path: Path, schema: Any, found: list[Any]) -> int:
    out = io.BytesIO()
    fastavro.writer(out, schema, found)
    return path.write_bytes(out.getvalue())


def planned(table: Table, batches: int, **more: str) -> list[list[int]]:
    """Of each batch: characters of the offset, files, tasks, bytes of the greatest, MB by which memory has grown."""
    given = json.dumps(options(table) | {key.lower(): value for key, value in more.items()})
    shown = subprocess.run([sys.executable, "-c", CHILD, given, str(batches)], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    found: list[list[int]] = json.loads(shown.stdout)
    return found


def test_all_files_at_once(table: Table) -> None:
    """Each counts 4 MB, the cost of opening one, and a task takes 128 MB."""
    ((offset, files, tasks, greatest, grown),) = planned(table, 1)
    assert files == FILES
    assert offset < 500
    assert tasks == FILES * 4 // 128
    assert greatest < 16_000
    assert grown < FILES // 250


def test_with_a_limit_memory_does_not_grow_with_what_is_left(table: Table) -> None:
    found = planned(table, 12, maxFilesPerTrigger="500")
    assert [files for _, files, *_ in found] == [500] * 12
    assert max(offset for offset, *_ in found) < 500
    assert found[-1][-1] - found[3][-1] < 20
