"""Partitions that live Java and this library expire, drop and mark: the same ones; Java continues in our tables."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import MaintenancePolicy, maintain, stream_read_builder
from pypaimon.streaming.maintenance import (
    drop_partitions,
    list_partitions,
    mark_partitions_done,
    rewrite_manifests,
)
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.java.live import LiveJava
from support.samples import SOAK, examples, seeded
from support.tables.named_files import files_of, needed_files
from support.tables.streamed_table import available

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.soak]

KINDS: dict[str, dict[str, str]] = {
    "append": {},
    "keyed": {"bucket": "2"},
    "dynamic buckets": {"bucket": "-1", "dynamic-bucket.target-row-num": "3"},
    "vectors": {"bucket": "1", "deletion-vectors.enabled": "true"},
    "lookup": {"bucket": "1", "changelog-producer": "lookup"},
}
DRAWN = [pytest.param(kind, marks=pytest.mark.nightly) if kind == "keyed" else kind for kind in KINDS]
"""Others of these have keys, and more."""
TIMES: dict[str, tuple[dict[str, str], list[list[Any]]]] = {
    "first value": ({}, [["2020-01-01", 1], ["2020-1-2 8:0:0", 2], ["2020-13-45", 3], ["2099-01-01", 4], ["x", 5]]),
    "odd values": ({}, [[" ", 1], ["a=b", 1], ["", 3], ["2020-01-01 24:61:00.5", 1], ["2020-01-01T00:00", 1]]),
    "formatter": (
        {"partition.timestamp-formatter": "yyyyMMdd"},
        [["20200101", 1], ["20200231", 2], ["2020-01-01", 3], ["20990101", 4], ["202001", 5]],
    ),
    "pattern": (
        {"partition.timestamp-pattern": "$p $h:00:00"},
        [["2020-01-01", 1], ["2020-01-01", 23], ["2099-01-01", 4], ["20200101", 5]],
    ),
    "both": (
        {"partition.timestamp-pattern": "$p-$h", "partition.timestamp-formatter": "yyyy-M[-d]-H"},
        [["2020-01-01", 1], ["2020-1-1", 24], ["2020-01", 2], ["2099-01-01", 4], ["2020-1-1", 25]],
    ),
}
EXPIRE = {"partition.expiration-time": "7 d", "partition.expiration-check-interval": "0 s"}
KEEP = MaintenancePolicy(min_snapshots=1000)


class Shared:
    """A table that Java has made, with the partitions of two columns; both may change it."""

    def __init__(self, java: LiveJava, directory: Path, kind: str, options: dict[str, str]) -> None:
        self.java = java
        self.warehouse = directory / "wh"
        keyed = kind != "append"
        fields = [["p", "STRING NOT NULL" if keyed else "STRING"], ["h", "INT NOT NULL"], ["k", "BIGINT NOT NULL"]]
        self.java.call(
            "create", warehouse=str(self.warehouse), fields=fields, partition_keys=["p", "h"],
            primary_keys=["p", "h", "k"] if keyed else [], options={"write-only": "true", **KINDS[kind], **options},
        )  # fmt: skip
        self.path = self.warehouse / "d.db" / "t"

    def write(self, *partitions: list[Any], first: int = 0) -> None:
        for key in range(first, first + 2):
            self.java.call("write", flushes=[[["+I", *each, key] for each in partitions]])

    def handle(self, **options: str) -> Any:
        return CatalogFactory.create({"warehouse": str(self.warehouse)}).get_table("d.t").copy(options)

    def rows(self) -> list[list[Any]]:
        reply = self.java.call("read", options={"scan.mode": "latest-full", "batch-scan-mode": "none"})
        assert not reply.get("error"), reply
        return sorted((row for plan in reply["plans"] for split in plan["splits"] for row in split["rows"]), key=repr)

    def left(self) -> list[tuple[str | None, ...]]:
        return [tuple(each.values.values()) for each in list_partitions(self.handle())]

    def save(self, name: str) -> None:
        shutil.copytree(self.warehouse, self.warehouse.parent / name)

    def load(self, name: str) -> None:
        shutil.rmtree(self.warehouse)
        shutil.copytree(self.warehouse.parent / name, self.warehouse)

    def age(self, days: int) -> None:
        """Makes the data files older, in the manifests that hold their times."""
        sizes: dict[str, int] = {}
        for manifest in self.path.glob("manifest/manifest-*-[0-9]*"):
            if not manifest.name.startswith("manifest-list-"):
                changed(manifest, lambda entry: older(entry["_FILE"], days))
                sizes[manifest.name] = manifest.stat().st_size
        for manifest_list in self.path.glob("manifest/manifest-list-*"):
            changed(manifest_list, lambda entry: entry.update(_FILE_SIZE=sizes[entry["_FILE_NAME"]]))

    def is_whole(self) -> bool:
        return needed_files(self.path) <= files_of(self.path)


def changed(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    with path.open("rb") as file:
        records = fastavro.reader(file)
        schema, entries = records.writer_schema, list(records)
    for entry in entries:
        change(entry)
    with path.open("wb") as file:
        fastavro.writer(file, schema, entries)


def older(file: dict[str, Any], days: int) -> None:
    file["_CREATION_TIME"] -= timedelta(days=days)


def changes(shared: Shared, first: int) -> tuple[list[str], list[str]]:
    """The rows of a stream of Java and of one of ours, from a snapshot on."""
    options = {"scan.mode": "from-snapshot", "scan.snapshot-id": str(first)}
    reply = shared.java.call("read", options=options)
    theirs = [row for plan in reply["plans"] for split in plan["splits"] for row in split["rows"]]
    builder = stream_read_builder(shared.handle()).with_start(snapshot_id=first)
    with builder.new_streaming_scan() as scan:
        read = builder.new_read()
        ours = [row for plan in available(scan) for row in read.to_arrow(plan.splits()).to_pylist()]
    return sorted(str(row[-1]) for row in theirs), sorted(str(each["k"]) for each in ours)


@pytest.mark.parametrize("times", TIMES)
def test_the_same_partitions_expire_by_their_values(java: LiveJava, tmp_path: Path, times: str) -> None:
    options, partitions = TIMES[times]
    kind = seeded(times).choice([*KINDS])
    shared = Shared(java, tmp_path, kind, options)
    shared.write(*partitions)
    shared.save("before")
    dropped = java.call("expire_partitions", options=EXPIRE)["partitions"]
    theirs, their_rows = shared.left(), shared.rows()
    shared.load("before")
    report = maintain(shared.handle(**EXPIRE), KEEP)
    assert shared.left() == theirs and shared.rows() == their_rows and shared.is_whole()
    assert [dict(each) for each in report.dropped_partitions] == dropped
    assert java.call("expire_partitions", options=EXPIRE)["partitions"] == []
    # Java continues, and streams of both hand out the same.
    first = int((shared.path / "snapshot" / "LATEST").read_text()) + 1
    shared.write(*partitions, first=10)
    java.call("compact", full=True, options={"write-only": "false"})
    of_java, ours = changes(shared, first)
    assert of_java == ours and ours
    java.call("expire", options={"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
    assert shared.is_whole() and len(shared.rows()) >= len(their_rows)


@pytest.mark.parametrize("kind", DRAWN)
def test_the_same_partitions_expire_by_their_last_write(java: LiveJava, tmp_path: Path, kind: str) -> None:
    shared = Shared(java, tmp_path, kind, {})
    shared.write(["old", 1], ["later", 2], ["a=b", 3])
    shared.age(days=10)
    shared.write(["later", 2], ["new", 4])
    shared.save("before")
    options = {**EXPIRE, "partition.expiration-strategy": "update-time"}
    dropped = java.call("expire_partitions", options=options)["partitions"]
    theirs, their_rows = shared.left(), shared.rows()
    assert {each[0] for each in theirs} == {"later", "new"}
    shared.load("before")
    report = maintain(shared.handle(**options), KEEP)
    assert shared.left() == theirs and shared.rows() == their_rows and shared.is_whole()
    assert [dict(each) for each in report.dropped_partitions] == dropped


def test_the_first_ones_by_their_texts_expire_if_there_are_too_many(java: LiveJava, tmp_path: Path) -> None:
    shared = Shared(java, tmp_path, "append", {})
    shared.write(*[[f"2020-{month}-{day}", 10 * day] for month in (1, 10, 2) for day in (1, 11, 2)])
    shared.save("before")
    limits = {"partition.expiration-max-num": "5", "partition.expiration-batch-size": "2"}
    dropped = java.call("expire_partitions", options={**EXPIRE, **limits})["partitions"]
    theirs, snapshots = shared.left(), len([*(shared.path / "snapshot").glob("snapshot-*")])
    shared.load("before")
    report = maintain(shared.handle(**EXPIRE, **limits), KEEP)
    assert [dict(each) for each in report.dropped_partitions] == dropped and shared.left() == theirs
    assert len([*(shared.path / "snapshot").glob("snapshot-*")]) == snapshots


@pytest.mark.parametrize("kind", DRAWN)
def test_partitions_are_dropped_as_by_java(java: LiveJava, tmp_path: Path, kind: str) -> None:
    chosen = seeded(f"drop {kind}")
    shared = Shared(java, tmp_path, kind, {})
    values = [[text, hour] for text in ("a", "b", "c,d", "e=f") for hour in (1, 2)]
    shared.write(*values)
    for number in range(examples(8)):
        name = f"before {number}"
        shared.save(name)
        text, hour = chosen.choice(values)
        specs = chosen.sample([{"p": text}, {"h": str(hour)}, {"p": text, "h": "1"}], chosen.randrange(1, 3))
        java.call("drop_partitions", partitions=specs)
        theirs = shared.rows()
        shared.load(name)
        drop_partitions(shared.handle(), specs)
        assert shared.rows() == theirs and shared.is_whole()
        shared.write(*chosen.sample(values, 3), first=10 * number)


def test_marks_are_those_of_java(java: LiveJava, tmp_path: Path) -> None:
    shared = Shared(java, tmp_path, "append", {})
    shared.write(["a", 1])
    java.call("mark_done", partition="p=a/h=1")
    (mark,) = shared.path.rglob("_SUCCESS")
    theirs = mark.read_text()
    assert mark_partitions_done(shared.handle(), {"p": "a", "h": 1}) == [str(mark)]
    ours = json.loads(mark.read_text())
    assert ours["creationTime"] == json.loads(theirs)["creationTime"]
    java.call("mark_done", partition="p=a/h=1")
    assert json.loads(mark.read_text())["creationTime"] == ours["creationTime"]
    assert json.loads(mark.read_text())["modificationTime"] >= ours["modificationTime"]


@pytest.mark.parametrize("kind", DRAWN)
def test_manifests_are_merged_as_by_java(java: LiveJava, tmp_path: Path, kind: str) -> None:
    shared = Shared(java, tmp_path, kind, {"manifest.target-file-size": "8 kb"})
    for turn in range(3 if SOAK else 2):
        for first in range(0, 12, 2):
            shared.write(["a", 1], ["b", 2], first=first)
        java.call("compact", full=True, options={"write-only": "false"})
        if turn == 1:
            java.call("drop_partitions", partitions=[{"p": "a"}])
        shared.save(f"before {turn}")
        rows = shared.rows()
        java.call("compact_manifests")
        theirs, of_java = manifests(shared)
        shared.load(f"before {turn}")
        before = newest(shared)
        report = rewrite_manifests(shared.handle())
        ours, of_ours = manifests(shared)
        assert of_ours == of_java and sum(ours) == sum(theirs) and len(ours) <= len(theirs) + 1
        assert report.snapshot_id == before["id"] + 1 and shared.rows() == rows
        assert rewrite_manifests(shared.handle()).snapshot_id is None
        java.call("compact_manifests")
        assert newest(shared)["id"] in (before["id"] + 1, before["id"] + 2)
        assert shared.rows() == rows and shared.is_whole()


def newest(shared: Shared) -> dict[str, Any]:
    paths = [*(shared.path / "snapshot").glob("snapshot-*")]
    found: dict[str, Any] = json.loads(max(paths, key=lambda path: int(path.name[9:])).read_text())
    return found


def manifests(shared: Shared) -> tuple[list[int], dict[str, Any]]:
    """How many files each manifest of the latest snapshot adds, and what the snapshot says apart from its lists."""
    snapshot = newest(shared)
    lists = [snapshot["baseManifestList"], snapshot["deltaManifestList"]]
    directory = TableDirectory.of(shared.handle())
    found = [
        count for each in directory.manifests.manifest_lists(lists) for count in each["num_added_files"].to_pylist()
    ]
    same = ("id", "schemaId", "indexManifest", "commitKind", "commitIdentifier", "totalRecordCount", "deltaRecordCount",
            "watermark", "statistics", "properties", "nextRowId")  # fmt: skip
    return found, {name: snapshot.get(name) for name in same}
