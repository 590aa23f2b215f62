"""Merging manifests leaves the same live files, in lists of bounded length, and costs no more as tables get older."""

from __future__ import annotations

import math
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pypaimon import CatalogFactory

from pypaimon.streaming.commit import manifests
from pypaimon.streaming.commit.changes import AvroRecord, FileChange
from pypaimon.streaming.commit.manifests import (
    ManifestOptions,
    ManifestWriter,
    NewFiles,
    full_merge,
    merged_manifests,
    minor_merge,
    which_may_hold,
)
from pypaimon.streaming.metadata.manifest_tables import list_parser
from pypaimon.streaming.metadata.manifests import live
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.samples import SOAK
from support.tables.handles import catalog_with_database, create_table
from support.tables.manifest_entries import added, deleted

pytestmark = [pytest.mark.slow, pytest.mark.soak]

EXAMPLES = 500 if SOAK else 4
OPTIONS = ManifestOptions("zstandard", target_size=4000, merge_min_count=4, full_merge_size=9000)
COLUMNS = pa.schema([("id", pa.int64())])


@dataclass
class Metadata:
    """The manifests of a table that nothing else writes."""

    directory: TableDirectory
    writer: ManifestWriter
    list: list[AvroRecord] = field(default_factory=list)

    @staticmethod
    def of(path: str, options: ManifestOptions = OPTIONS) -> Metadata:
        catalog = CatalogFactory.create({"warehouse": path})
        catalog.create_database("db", True)
        table = create_table(catalog, "t", COLUMNS)
        return Metadata(TableDirectory.of(table), ManifestWriter(PaimonTable(table), options))

    def commit(self, changes: list[FileChange]) -> None:
        new = NewFiles()
        self.list = [
            *merged_manifests(self.directory.manifests, self.writer, new, self.list),
            *self.writer.manifests(new, changes),
        ]
        new.write(self.directory)

    def live(self) -> list[str]:
        return sorted(live(self._entries()).column("file_name").to_pylist())

    def _entries(self) -> pa.Table:
        # A directory of its own, for nothing that was written must be known here.
        table = list_parser().flattened([dict(each) for each in self.list])
        return TableDirectory(self.directory.table, self.directory.store).manifests.entries(table)


def _meta(name: str, size: int, deletes: int = 0) -> dict[str, Any]:
    return {"_FILE_NAME": name, "_FILE_SIZE": size, "_NUM_ADDED_FILES": 1, "_NUM_DELETED_FILES": deletes}


def _names(groups: list[list[AvroRecord]]) -> list[str]:
    return ["".join(each["_FILE_NAME"] for each in group) for group in groups]


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([10, 10, 10], ["a", "b", "c"]),
        ([10, 10, 10, 10], ["abcd"]),
        ([3000, 2000, 10, 10], ["ab", "c", "d"]),
        ([4000, 10, 5000, 10], ["a", "bc", "d"]),
        ([4000, 10, 10, 10, 10], ["a", "bcde"]),
    ],
)
def test_small_manifests_are_packed_until_they_are_full(sizes: list[int], groups: list[str]) -> None:
    assert _names(minor_merge([_meta(*each) for each in zip("abcde", sizes, strict=False)], OPTIONS)) == groups


def test_where_options_are_0_every_commit_merges(tmp_path: Path) -> None:
    options = ManifestOptions("zstandard", target_size=0, merge_min_count=0, full_merge_size=0)
    metadata = Metadata.of(str(tmp_path), options)
    for name in "abc":
        metadata.commit([added(name)])
    assert metadata.live() == ["a", "b", "c"]


def test_all_small_ones_and_those_with_deletes_are_merged_once_they_are_large_together() -> None:
    manifests = [_meta("a", 5000), _meta("b", 5000, 1), _meta("c", 3000), _meta("d", 999)]
    assert full_merge(manifests, OPTIONS) is None
    assert full_merge([*manifests, _meta("e", 1)], OPTIONS) == {"b", "c", "d", "e"}


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 40), st.booleans()), min_size=1, max_size=6), max_size=20))
def test_the_live_files_are_the_same_after_every_merge(commits: list[list[tuple[int, bool]]]) -> None:
    """Files come, go, and never come again; a commit may hold one that comes and many that go."""
    with tempfile.TemporaryDirectory() as directory:
        metadata, there, count = Metadata.of(directory), list[str](), 0
        for commit in commits:
            changes, gone = [], set[str]()
            for number, comes in commit:
                if comes or not set(there) - gone:
                    count += 1
                    changes.append(added(f"data-{count}", _MIN_KEY=os.urandom(200)))
                else:
                    gone.add(sorted(set(there) - gone)[number % len(set(there) - gone)])
            new = [each.name for each in changes]
            metadata.commit([*(deleted(name) for name in sorted(gone)), *changes])
            there = sorted({*there, *new} - gone)
            assert metadata.live() == there
            small = [each for each in metadata.list if each["_FILE_SIZE"] < OPTIONS.target_size]
            assert sum(each["_FILE_SIZE"] for each in small) < OPTIONS.full_merge_size + 4 * OPTIONS.target_size
            for each in metadata.list:
                assert each["_NUM_ADDED_FILES"] + each["_NUM_DELETED_FILES"] > 0


def test_a_delete_whose_file_is_in_an_earlier_manifest_survives_a_minor_merge(tmp_path: Path) -> None:
    metadata = Metadata.of(str(tmp_path))
    metadata.commit([added(f"data-{number}", _MIN_KEY=os.urandom(200)) for number in range(25)])
    assert metadata.list[0]["_FILE_SIZE"] > OPTIONS.target_size
    metadata.commit([deleted("data-3")])
    for number in range(25, 29):
        metadata.commit([added(f"data-{number}")])
    assert [each["_NUM_DELETED_FILES"] for each in metadata.list] == [0, 1, 0]
    assert "data-3" not in metadata.live() and len(metadata.live()) == 28


def test_the_list_stays_short_and_entries_are_taken_over_undecoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = list[int]()

    def changes_of(entries: pa.Table) -> list[FileChange]:
        decoded.append(entries.num_rows)
        return []

    monkeypatch.setattr(manifests, "changes_of", changes_of)
    metadata = Metadata.of(str(tmp_path), ManifestOptions("zstandard", 8 << 20, 30, 16 << 20))
    for number in range(200):
        metadata.commit([added(f"data-{number}", bucket=number % 3, _SCHEMA_ID=number % 2)])
        assert len(metadata.list) <= 30
    assert len(metadata.live()) == 200 and not decoded
    first = metadata.list[0]
    assert (first["_MIN_BUCKET"], first["_MAX_BUCKET"], first["_SCHEMA_ID"], first["_TOTAL_BUCKETS"]) == (0, 2, 1, 1)


def test_what_manifests_say_of_their_partitions_is_joined(tmp_path: Path) -> None:
    catalog = catalog_with_database(tmp_path)
    columns = pa.schema([("dt", pa.string()), ("hh", pa.int32()), ("v", pa.int64())])
    table = create_table(catalog, "t", columns, partition_keys=["dt", "hh"])
    writer, new = ManifestWriter(PaimonTable(table), OPTIONS), NewFiles()
    rows = {values: _row(table, values) for values in [("a", 3), ("c", 1), (None, 2)]}
    metas = [writer.manifests(new, [added("x", partition=row)])[0] for row in rows.values()]
    (joined,) = writer.copied(new, [(3, b"")], metas)
    together = writer.manifests(new, [added("x", partition=row) for row in rows.values()])[0]
    stats = {"_MIN_VALUES": _row(table, ("a", 1)), "_MAX_VALUES": _row(table, ("c", 3)), "_NULL_COUNTS": [1, 0]}
    assert joined["_PARTITION_STATS"] == together["_PARTITION_STATS"] == stats
    assert metas[0]["_PARTITION_STATS"]["_MIN_VALUES"] == rows["a", 3]


def test_partitions_that_readers_sort_otherwise_have_no_bounds_and_are_found(tmp_path: Path) -> None:
    catalog = catalog_with_database(tmp_path)
    columns = pa.schema([("b", pa.binary()), ("f", pa.float64()), ("n", pa.int32()), ("v", pa.int64())])
    table = create_table(catalog, "t", columns, partition_keys=["b", "f", "n"])
    writer, new = ManifestWriter(PaimonTable(table), OPTIONS), NewFiles()
    rows = [_row(table, values) for values in [(b"\x7f", math.nan, 3), (b"\xf0", 1.0, None), (b"\x00", 2.0, 5)]]
    metas = [writer.manifests(new, [added("x", partition=row)])[0] for row in rows]
    for each, stated in zip(metas, [(None, None, 3), (None, 1.0, None), (None, 2.0, 5)], strict=True):
        stats = each["_PARTITION_STATS"]
        assert stats["_MIN_VALUES"] == stats["_MAX_VALUES"] == _row(table, stated)
    (joined,) = writer.copied(new, [(3, b"")], metas)
    least, greatest = _row(table, (None, None, 3)), _row(table, (None, None, 5))
    stats = {"_MIN_VALUES": least, "_MAX_VALUES": greatest, "_NULL_COUNTS": [0, 0, 1]}
    assert joined["_PARTITION_STATS"] == stats
    # Nobody knows how many of them are null, or that the only bounds are those of one partition.
    metas[0]["_PARTITION_STATS"]["_NULL_COUNTS"] = [None, None, None]
    (joined,) = writer.copied(new, [(3, b"")], metas)
    assert joined["_PARTITION_STATS"]["_NULL_COUNTS"] == [None, None, None]
    assert writer.manifest_list(new, [joined])
    assert which_may_hold(metas, [rows[1]], table.partition_keys_fields) == metas


def _row(table: Any, values: tuple[Any, ...]) -> bytes:
    from pypaimon.streaming.paimon.internals import GenericRow, GenericRowSerializer

    return bytes(GenericRowSerializer.to_bytes(GenericRow(list(values), table.partition_keys_fields)))
