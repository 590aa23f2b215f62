"""Pruning against Java's: plans over the corpus hold as many files per bucket as Java's plans with the same filter."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pypaimon.streaming.filtering.pruning import Pruner, Scan
from pypaimon.streaming.metadata.manifest_tables import ENTRY_SCHEMA, list_parser, manifest_parser
from pypaimon.streaming.metadata.manifests import live
from pypaimon.streaming.options.table_kinds import ChangelogProducer
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.paimon.filter_internals import Predicate
from pypaimon.streaming.paimon.internals import TableSchema
from support.corpus.cases import unpack
from support.corpus.values import literal
from support.samples import SOAK, is_drawn

pytestmark = [pytest.mark.slow, pytest.mark.soak]

ARCHIVES = ("java-2.1", "java-1.4", "java-0.9")
"""Those whose filtered reads need no more of a planner than is made here: no data evolution, no deletion vectors."""
METHODS = {"=": "equal", "<": "lessThan", ">": "greaterThan", ">=": "greaterOrEqual", "is_null": "isNull", "in": "in"}
Files = Counter[tuple[bytes, int]]


class CorpusTable:
    """What is needed of a table of the corpus to plan it, by one filter."""

    def __init__(self, path: Path, given: tuple[str, str, Any]) -> None:
        self.path = path
        self.schema = self.schema_of(max(int(each.name[7:]) for each in (path / "schema").glob("schema-*")))
        self.traits = TableTraits.of(self.schema)
        name, op, value = given
        sql = next(str(each.type) for each in self.schema.fields if each.name == name)
        literals = None if op == "is_null" else [literal(each, sql) for each in (value if op == "in" else [value])]
        self.pruner = Pruner(self.schema, self.schema_of, Predicate(METHODS[op], 0, name, literals))
        snapshots = (json.loads(each.read_text()) for each in (path / "snapshot").glob("snapshot-*"))
        self.snapshots = {each["id"]: each for each in snapshots}

    def schema_of(self, schema_id: int) -> TableSchema:
        return TableSchema.from_json((self.path / "schema" / f"schema-{schema_id}").read_text())

    def plans(self, restore: int | None) -> Iterator[tuple[int, Files]]:
        """Position after each plan that holds files, and how many per bucket."""
        start = restore or max(self.snapshots) + 1
        if restore is None:
            yield start, self.files(live(self.first(self.snapshots[start - 1])), "full")
        for each in sorted(self.snapshots):
            name = self.manifest_list(self.snapshots[each])
            if each >= start and name:
                scan: Scan = "delta" if self.traits.producer is ChangelogProducer.NONE else "changelog"
                yield each + 1, self.files(live(self.entries(name)), scan)

    def manifest_list(self, snapshot: dict[str, Any]) -> str | None:
        if self.traits.producer is not ChangelogProducer.NONE:
            return snapshot.get("changelogManifestList")
        return snapshot["deltaManifestList"] if snapshot["commitKind"] == "APPEND" else None

    def first(self, snapshot: dict[str, Any]) -> pa.Table:
        entries = pa.concat_tables(self.entries(snapshot[f"{name}ManifestList"]) for name in ("base", "delta"))
        lowest = {ChangelogProducer.LOOKUP: 1, ChangelogProducer.FULL_COMPACTION: self.traits.num_levels - 1}
        return entries.filter(pc.greater_equal(entries["level"], lowest.get(self.traits.producer, 0)))

    def entries(self, name: str) -> pa.Table:
        manifests = list_parser()((self.path / "manifest" / name).read_bytes())
        names = manifests.filter(self.pruner.manifests(manifests))["file_name"].to_pylist()
        parsed = (manifest_parser()((self.path / "manifest" / each).read_bytes()) for each in names)
        return pa.concat_tables([ENTRY_SCHEMA.empty_table(), *parsed])

    def files(self, entries: pa.Table, scan: Scan) -> Files:
        left = entries.filter(self.pruner.entries(entries, scan))
        return Counter(zip(left["partition"].to_pylist(), left["bucket"].to_pylist(), strict=True))


@pytest.mark.parametrize("archive", ARCHIVES)
def test_as_many_files_as_java_plans(archive: str) -> None:
    compared = 0
    for expected in sorted(unpack(archive).glob("*/expect.json")):
        for read in json.loads(expected.read_text())["reads"]:
            if not read.get("filter") or any("overwrite" in key for key in read["options"]):
                continue
            if not (SOAK or is_drawn(f"pruning {expected.parent.name}/{read['name']}", 3)):
                continue
            table = CorpusTable(expected.parent / "wh" / "d.db" / "t", read["filter"])
            ours = [(after, by_bucket(files)) for after, files in table.plans(read["restore"]) if files]
            assert ours == list(java_plans(read)), f"{expected.parent.name}/{read['name']}"
            compared += 1
    assert compared > (20 if SOAK else 5)


def by_bucket(files: Files) -> list[tuple[int, int]]:
    """Bucket and number of files, per partition, in an order that both sides have."""
    return sorted((bucket, count) for (_, bucket), count in files.items())


def java_plans(read: dict[str, Any]) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    for plan in read["plans"]:
        counts: Counter[tuple[str, int]] = Counter()
        for split in plan.get("splits", []):
            counts[json.dumps(split["partition"]), split["bucket"]] += split["files"]
        if counts:
            yield plan["next"], sorted((bucket, count) for (_, bucket), count in counts.items())
