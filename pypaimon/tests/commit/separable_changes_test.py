"""Which parts of a compaction may follow a state: each is checked with the files that matter to it, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from pypaimon.streaming.commit.changes import COMPACT, AvroRecord, Changes, FileChange
from pypaimon.streaming.commit.conflicts import ConflictRules, check_changes
from pypaimon.streaming.commit.request import SeparableChanges
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.index_manifests import DELETION_VECTORS


def file(
    name: str, first: int | None = None, rows: int = 10, *, partition: bytes = b"p", bucket: int = 0, count: int = -1
) -> FileChange:
    stored: dict[str, Any] = {
        "_FILE_NAME": name, "_FIRST_ROW_ID": first, "_ROW_COUNT": rows, "_LEVEL": 0, "_EXTRA_FILES": [],
        "_EMBEDDED_FILE_INDEX": None, "_EXTERNAL_PATH": None,
    }  # fmt: skip
    return FileChange(EntryKind.ADD, partition, bucket, count, stored)


def vectors(name: str, *marked: str) -> AvroRecord:
    ranges = [{"f0": each, "f1": 0, "f2": 1, "_CARDINALITY": 1} for each in marked]
    place = {"_PARTITION": b"p", "_BUCKET": 0, "_INDEX_TYPE": DELETION_VECTORS}
    return {**place, "_FILE_NAME": name, "_DELETIONS_VECTORS_RANGES": ranges}


def part(before: list[FileChange], *after: FileChange, **index: list[AvroRecord]) -> Changes:
    return Changes.of([*(each.deleted() for each in before), *after], (), *index.values())


def kept(parts: list[Changes], base: list[FileChange], rules: ConflictRules, *index: AvroRecord) -> set[str]:
    """The new files of the parts that are kept, which may follow the state together."""
    rest = SeparableChanges(parts).without_conflicts(base, index, rules)
    if rest is None:
        return set()
    there = [each for each in base if each.partition in rest.partitions]
    check_changes(COMPACT, there, index, rest, rules)
    return {each.name for each in rest.added}


A, B, C, D = (file(f"{name}.parquet", 10 * number) for number, name in enumerate("abcd"))
EVOLUTION = ConflictRules(unaware_buckets=True, data_evolution=True)
FIRST, SECOND = part([A, B], file("ab.parquet", 0, 20)), part([C, D], file("cd.parquet", 20, 20))


def test_an_update_of_columns_leaves_out_only_the_part_that_it_does_not_fit() -> None:
    assert kept([FIRST, SECOND], [A, B, C, D, file("update.parquet", 10)], EVOLUTION) == {"cd.parquet"}
    assert kept([FIRST, SECOND], [A, B, C, D, file("update.parquet", 10, partition=b"q")], EVOLUTION) == {
        "ab.parquet",
        "cd.parquet",
    }
    wide = [file("x.blob", 0, 40), file("y.blob", 1, 1), file("z.blob", 15, 10)]
    assert not kept([FIRST, SECOND], [A, B, C, D, *wide], EVOLUTION)
    assert kept([FIRST, SECOND], [A, B, C, D, wide[1]], EVOLUTION) == {"ab.parquet", "cd.parquet"}


def test_files_of_blobs_belong_to_data_files_that_their_part_does_not_name() -> None:
    blobs = [file("x.blob", 0, 5), file("y.blob", 5, 5)]
    apart = part(blobs, file("xy.blob", 0, 10))
    base = [A, *blobs, B, C, D]
    assert kept([apart, SECOND], [*base, file("update.parquet", 30)], EVOLUTION) == {"xy.blob"}
    assert kept([apart, SECOND], [each for each in base if each is not A], EVOLUTION) == {"cd.parquet"}


def test_vectors_of_files_that_stay_are_no_conflict() -> None:
    rules = ConflictRules(unaware_buckets=True)
    index = vectors("old", "a.parquet", "c.parquet")
    one = part([A], file("new.parquet"), added=[vectors("new", "c.parquet")], deleted=[index])
    other = part([file("gone.parquet", partition=b"q")], file("other.parquet", partition=b"q"))
    assert kept([one, other], [A, B, C], rules, index) == {"new.parquet"}
    assert not kept([one, other], [A, B], rules, index), "the file that the vector marks is gone"


@pytest.mark.parametrize("keyed", [False, True])
def test_another_number_of_buckets_leaves_out_the_parts_of_its_partition(keyed: bool) -> None:
    first, second, other = (
        file("x.parquet", bucket=0, count=2),
        file("y.parquet", bucket=1, count=2),
        file("z.parquet", partition=b"q", count=2),
    )
    parts = [
        part([first], file("new-x.parquet", bucket=0, count=2)),
        part([second], file("new-y.parquet", bucket=1, count=2)),
        part([other], file("new-z.parquet", partition=b"q", count=2)),
    ]
    unchecked = file("unchecked.parquet", bucket=2, count=3)
    rules = ConflictRules((lambda key: [key]) if keyed else None)
    assert kept(parts, [first, second, other, unchecked], rules) == {"new-z.parquet"}
