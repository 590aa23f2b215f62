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
    return set().union(*needed_by_roots(table).values())


def needed_by_roots(table: Path) -> dict[str, set[str]]:
    """What each snapshot, tag and changelog needs, by its path in the table, branches with theirs."""
    manifests = _Manifests(table / "manifest")
    found: dict[str, set[str]] = {}
    for branch in [table, *(table / "branch").glob("branch-*")]:
        for path in [*branch.glob("snapshot/snapshot-[0-9]*"), *(p for p in branch.glob("tag/tag-*") if p.is_file())]:
            found[str(path.relative_to(table))] = set(_needed_by_snapshot(manifests, path))
        for path in branch.glob("changelog/changelog-[0-9]*"):
            found[str(path.relative_to(table))] = set(_needed_by_changelog(manifests, branch, path))
    return found


def needed_by(table: Path, path: Path) -> Iterator[str]:
    """Names of the files that one snapshot or tag needs."""
    return _needed_by_snapshot(_Manifests(table / "manifest"), path)


def deleted_by_commits(table: Path) -> set[str]:
    """Names of the data files that the commits of snapshots and long-lived changelogs without a producer deleted.

    Java may have deleted manifests of other branches.
    """
    manifests, found = _Manifests(table / "manifest"), set()
    for path in (*table.rglob("changelog/changelog-[0-9]*"), *table.rglob("snapshot/snapshot-[0-9]*")):
        snapshot = json.loads(path.read_text())
        if snapshot.get("changelogManifestList") is None:
            for manifest in manifests.if_there(snapshot["deltaManifestList"]):
                entries = manifests.if_there(manifest["_FILE_NAME"])
                found.update(each["_FILE"]["_FILE_NAME"] for each in entries if each["_KIND"] != _ADD)
    return found


def files_of(table: Path) -> set[str]:
    """Names of the data, changelog, manifest, index and statistics files of a table."""
    small = {"snapshot", "changelog", "schema", "tag", "branch", "consumer", "service"}
    return {
        path.name
        for path in table.rglob("*")
        if path.is_file() and path.relative_to(table).parts[0] not in small and not path.name.startswith(".")
    }


class _Manifests:
    """The manifests and their lists, each read once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[str, list[Any]] = {}

    def __getitem__(self, name: str) -> list[Any]:
        if name not in self._read:
            self._read[name] = _records(self._directory / name)
        return self._read[name]

    def if_there(self, name: str) -> list[Any]:
        try:
            return self[name]
        except FileNotFoundError:
            return []


def _needed_by_snapshot(manifests: _Manifests, path: Path) -> Iterator[str]:
    snapshot = json.loads(path.read_text())
    yield from _live(manifests, [snapshot["baseManifestList"], snapshot["deltaManifestList"]])
    if path.parent.name == "snapshot" and (changes := snapshot.get("changelogManifestList")):
        yield from _added(manifests, changes)
    if statistics := snapshot.get("statistics"):
        yield statistics
    if index := snapshot.get("indexManifest"):
        yield index
        yield from (entry["_FILE_NAME"] for entry in manifests[index] if entry["_KIND"] == _ADD)


def _needed_by_changelog(manifests: _Manifests, branch: Path, path: Path) -> Iterator[str]:
    snapshot = json.loads(path.read_text())
    if changes := snapshot.get("changelogManifestList"):
        yield from _added(manifests, changes)
    elif not _had_producer(branch, snapshot["schemaId"]):
        # The base is not read, but Java keeps it as a whole.
        yield snapshot["baseManifestList"]
        yield from (manifest["_FILE_NAME"] for manifest in manifests[snapshot["baseManifestList"]])
        yield from _added(manifests, snapshot["deltaManifestList"], written=True)


def _had_producer(branch: Path, schema: int) -> bool:
    options = json.loads((branch / "schema" / f"schema-{schema}").read_text())["options"]
    return options.get("changelog-producer", "none") != "none"


def _live(manifests: _Manifests, lists: list[str]) -> Iterator[str]:
    counts: Counter[tuple[str, int]] = Counter()
    extra: dict[str, list[str]] = {}
    for name in lists:
        yield name
        for manifest in manifests[name]:
            yield manifest["_FILE_NAME"]
            for entry in manifests[manifest["_FILE_NAME"]]:
                file = entry["_FILE"]
                counts[file["_FILE_NAME"], file["_LEVEL"]] += 1 if entry["_KIND"] == _ADD else -1
                extra[file["_FILE_NAME"]] = file["_EXTRA_FILES"] or []
    for (name, _), count in counts.items():
        if count > 0:
            yield _real(name)
            yield from extra[name]


def _added(manifests: _Manifests, name: str, written: bool = False) -> Iterator[str]:
    yield name
    for manifest in manifests[name]:
        yield manifest["_FILE_NAME"]
        for entry in manifests[manifest["_FILE_NAME"]]:
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
