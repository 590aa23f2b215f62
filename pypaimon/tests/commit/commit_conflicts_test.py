"""May these changes follow this state? Cases of Java's `ConflictDetection`, and where deletion vectors are safer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pypaimon.streaming.commit.changes import APPEND, COMPACT, OVERWRITE, AvroRecord, Changes, FileChange
from pypaimon.streaming.commit.conflicts import ConflictRules, check_changes
from pypaimon.streaming.commit.draft import combined_index
from pypaimon.streaming.errors import CommitConflictError
from support.tables.manifest_entries import EMPTY_ROW, added, deleted, vectors

APPEND_TABLE = ConflictRules(unaware_buckets=True)
KEYED = ConflictRules(key_order=lambda key: key)
HERE = [added("a"), added("b")]


def conflict(
    changes: Changes,
    base: Sequence[FileChange] = HERE,
    *,
    kind: str = COMPACT,
    index: Sequence[AvroRecord] = (),
    rules: ConflictRules = APPEND_TABLE,
) -> str | None:
    """What is wrong, None if nothing is."""
    try:
        check_changes(kind, base, index, changes, rules)
    except CommitConflictError as error:
        return str(error)
    return None


@pytest.mark.parametrize("kind", [APPEND, COMPACT, OVERWRITE])
def test_files_that_are_there_may_be_replaced_once(kind: str) -> None:
    changes = Changes.of([added("c"), deleted("a"), deleted("b")])
    assert conflict(changes, kind=kind) is None
    assert "a is to be deleted and is not in the table any more" in str(conflict(changes, [added("b")], kind=kind))
    assert "is to be deleted" in str(conflict(changes, [added("c")], kind=kind))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ([added("a")], "a is in the table already"),
        ([added("c"), added("c")], "names file c twice"),
        ([deleted("a"), deleted("a")], "names file a twice"),
        ([deleted("a"), added("a")], "names file a twice"),
    ],
)
def test_a_file_comes_once_and_goes_once(changes: list[FileChange], text: str) -> None:
    assert text in str(conflict(Changes.of(changes)))


@pytest.mark.parametrize(
    "other",
    [
        {"_LEVEL": 1}, {"_EXTRA_FILES": ["a.index"]}, {"_EMBEDDED_FILE_INDEX": b"x"}, {"_EXTERNAL_PATH": "s3://x/a"},
        {"bucket": 1}, {"partition": b"another"},
    ],
)  # fmt: skip
def test_a_file_is_identified_by_all_that_java_identifies_it_by(other: dict[str, object]) -> None:
    assert "not in the table any more" in str(conflict(Changes.of([deleted("a", **other)])))
    assert conflict(Changes.of([added("a", **other)])) is None


def test_a_file_may_move_to_another_level_under_its_name() -> None:
    upgrade = Changes.of([added("a", _LEVEL=5), deleted("a")])
    assert conflict(upgrade, rules=KEYED) is None
    assert [(each.kind.name, each.file["_LEVEL"]) for each in upgrade.files] == [("DELETE", 0), ("ADD", 5)]


@pytest.mark.parametrize(("kind", "refused"), [(APPEND, True), (COMPACT, True), (OVERWRITE, False)])
def test_a_partition_keeps_its_number_of_buckets_unless_it_is_overwritten(kind: str, refused: bool) -> None:
    changes = Changes.of([added("c", total=4)])
    assert (conflict(changes, [added("a", total=2)], kind=kind) is not None) == refused
    assert conflict(changes, [added("a", total=2, partition=b"another")], kind=kind) is None


@pytest.mark.parametrize(
    ("there", "comes", "overlap"),
    [((b"a", b"c"), (b"d", b"f"), False), ((b"a", b"d"), (b"d", b"f"), True), ((b"e", b"e"), (b"d", b"f"), True),
     ((b"g", b"h"), (b"d", b"f"), False)],
)  # fmt: skip
@pytest.mark.parametrize("level", [0, 1, 5])
def test_on_a_level_keys_do_not_overlap(
    there: tuple[bytes, bytes], comes: tuple[bytes, bytes], overlap: bool, level: int
) -> None:
    base = [added("a", _LEVEL=level, _MIN_KEY=there[0], _MAX_KEY=there[1])]
    changes = Changes.of([added("c", _LEVEL=level, _MIN_KEY=comes[0], _MAX_KEY=comes[1])])
    assert (conflict(changes, base, rules=KEYED) is not None) == (overlap and level > 0)
    elsewhere = [added("a", bucket=1, _LEVEL=level, _MIN_KEY=there[0], _MAX_KEY=there[1])]
    assert conflict(changes, elsewhere, rules=KEYED) is None


def test_a_file_is_not_rewritten_without_the_vector_that_it_got_meanwhile() -> None:
    rewrite = Changes.of([deleted("a"), added("c")])
    assert conflict(rewrite, index=[vectors("v1", "b")]) is None
    assert "deleted meanwhile" in str(conflict(rewrite, index=[vectors("v1", "a")]))
    with_it = Changes.of(rewrite.files, (), (), [vectors("v1", "a")])
    assert conflict(with_it, index=[vectors("v1", "a")]) is None
    assert "v1 is to be replaced" in str(conflict(with_it, index=[vectors("v2", "a")]))


def test_rows_are_deleted_of_files_that_are_there_and_have_no_vector_yet() -> None:
    delete = Changes.of((), (), [vectors("v2", "a")])
    assert conflict(delete, kind=OVERWRITE) is None
    assert "not in the table any more" in str(conflict(delete, [added("b")], kind=OVERWRITE))
    assert "were deleted meanwhile (v1)" in str(conflict(delete, kind=OVERWRITE, index=[vectors("v1", "a")]))


def test_the_vectors_of_a_bucket_are_replaced_by_a_commit_that_has_read_them() -> None:
    compaction = Changes.of([deleted("a"), added("c")], (), [vectors("v2", "b")], [vectors("v1", "b")])
    assert conflict(compaction, rules=KEYED, index=[vectors("v1", "b")]) is None
    assert "v1 is to be replaced" in str(conflict(compaction, rules=KEYED, index=[vectors("v3", "b")]))
    unseen = Changes.of([deleted("a"), added("c")], (), [vectors("v2", "b")])
    for kind in (COMPACT, OVERWRITE):
        assert "were not read" in str(conflict(unseen, rules=KEYED, kind=kind, index=[vectors("v1", "b")]))
    assert conflict(unseen, rules=KEYED, index=[vectors("v1", "b", bucket=1)]) is None


def test_a_file_of_a_bucket_is_not_rewritten_without_a_vector_that_was_not_read() -> None:
    rewrite = Changes.of([deleted("a"), added("c")])
    assert "rows of it were deleted meanwhile" in str(conflict(rewrite, rules=KEYED, index=[vectors("v1", "a")]))
    assert conflict(rewrite, rules=KEYED, index=[vectors("v1", "b")]) is None
    moved = Changes.of([deleted("a"), added("a", _LEVEL=1)])
    assert conflict(moved, rules=KEYED, index=[vectors("v1", "a")]) is None
    stale = Changes.of([], (), [vectors("v2", "gone")], [vectors("v1", "a")])
    assert "not in the table any more" in str(conflict(stale, rules=KEYED, index=[vectors("v1", "a")]))


def test_index_files_of_a_bucket_replace_each_other_and_others_go_by_name() -> None:
    hashes = [{**vectors(name), "_INDEX_TYPE": "HASH"} for name in ("h1", "h2")]
    index = [vectors("v1", "a"), hashes[0], {**vectors("g1"), "_INDEX_TYPE": "btree"}]
    changes = Changes.of((), (), [vectors("v2", "b"), hashes[1]], [])
    names = [each["_FILE_NAME"] for each in combined_index(index, changes, unaware_buckets=False)]
    assert names == ["g1", "v2", "h2"]
    names = [each["_FILE_NAME"] for each in combined_index(index, changes, unaware_buckets=True)]
    assert names == ["v1", "g1", "v2", "h2"]
    gone = Changes.of((), (), (), [vectors("v1", "a")])
    assert [each["_FILE_NAME"] for each in combined_index(index, gone, unaware_buckets=True)] == ["h1", "g1"]


def test_partitions_that_only_index_files_touch_count_too() -> None:
    assert Changes.of((), (), [vectors("v2", "b")]).partitions == {EMPTY_ROW}
