"""Which files a table must have, found out file by file with fastavro: the referee of maintenance."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.orc as orc
import pyarrow.parquet as pq

_ADD, _COMPACT = 0, 1
_PART = re.compile(r"(.+\$-?\d+-\d+)-\d+-\d+(\.cc-\w+)")


def needed_files(table: Path) -> set[str]:
    """Names of the files that the snapshots, tags and changelogs of all branches need."""
    branches = [table, *(table / "branch").glob("branch-*")]
    return {name for branch in branches for name in _needed_by_branch(table, branch)}


def needed_by(table: Path, path: Path) -> Iterator[str]:
    """Names of the files that one snapshot or tag needs."""
    snapshot = json.loads(path.read_text())
    lists = [snapshot["baseManifestList"], snapshot["deltaManifestList"]]
    yield from _live(table, lists)
    if path.parent.name == "snapshot" and (changes := snapshot.get("changelogManifestList")):
        yield from _added(table, changes)
    if statistics := snapshot.get("statistics"):
        yield statistics
    if index := snapshot.get("indexManifest"):
        yield index
        yield from (entry["_FILE_NAME"] for entry in _records(table / "manifest" / index) if entry["_KIND"] == _ADD)


def files_of(table: Path) -> set[str]:
    """Names of the data, changelog, manifest, index and statistics files of a table."""
    small = {"snapshot", "changelog", "schema", "tag", "branch", "consumer", "service"}
    return {
        path.name
        for path in table.rglob("*")
        if path.is_file() and path.relative_to(table).parts[0] not in small and not path.name.startswith(".")
    }


def _needed_by_branch(table: Path, branch: Path) -> Iterator[str]:
    for path in [*branch.glob("snapshot/snapshot-[0-9]*"), *(p for p in branch.glob("tag/tag-*") if p.is_file())]:
        yield from needed_by(table, path)
    for path in branch.glob("changelog/changelog-[0-9]*"):
        snapshot = json.loads(path.read_text())
        if changes := snapshot.get("changelogManifestList"):
            yield from _added(table, changes)
        elif not _had_producer(branch, snapshot["schemaId"]):
            yield snapshot["baseManifestList"]
            yield from _added(table, snapshot["deltaManifestList"], written=True)


def _had_producer(branch: Path, schema: int) -> bool:
    options = json.loads((branch / "schema" / f"schema-{schema}").read_text())["options"]
    return options.get("changelog-producer", "none") != "none"


def _live(table: Path, lists: list[str]) -> Iterator[str]:
    counts: Counter[tuple[str, int]] = Counter()
    extra: dict[str, list[str]] = {}
    for name in lists:
        yield name
        for manifest in _records(table / "manifest" / name):
            yield manifest["_FILE_NAME"]
            for entry in _records(table / "manifest" / manifest["_FILE_NAME"]):
                file = entry["_FILE"]
                counts[file["_FILE_NAME"], file["_LEVEL"]] += 1 if entry["_KIND"] == _ADD else -1
                extra[file["_FILE_NAME"]] = file["_EXTRA_FILES"] or []
    for (name, _), count in counts.items():
        if count > 0:
            yield _real(name)
            yield from extra[name]


def _added(table: Path, name: str, written: bool = False) -> Iterator[str]:
    yield name
    for manifest in _records(table / "manifest" / name):
        yield manifest["_FILE_NAME"]
        for entry in _records(table / "manifest" / manifest["_FILE_NAME"]):
            if entry["_KIND"] == _ADD and not (written and entry["_FILE"].get("_FILE_SOURCE") == _COMPACT):
                yield _real(entry["_FILE"]["_FILE_NAME"])
                yield from entry["_FILE"]["_EXTRA_FILES"] or []


def _real(name: str) -> str:
    """The file that holds a part of a merged changelog."""
    found = _PART.fullmatch(name)
    return found[1] + found[2] if found else name


def _records(path: Path) -> list[Any]:
    status = path.stat()
    return _parsed(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=1024)
def _parsed(path: Path, *_: int) -> list[Any]:
    data = path.read_bytes()
    if data[:3] == b"Obj":
        return list(fastavro.reader(io.BytesIO(data)))
    if data[:4] == b"PAR1":
        return pq.read_table(io.BytesIO(data)).to_pylist()
    return orc.read_table(io.BytesIO(data)).to_pylist()
