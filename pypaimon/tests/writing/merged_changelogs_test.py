"""`precommit-compact`: one changelog file for the buckets of a partition, and what its readers see of it."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import PaimonStreamError, compact, stream_read_builder, stream_write_builder
from pypaimon.streaming.metadata.file_paths import merged_changelog_range
from support.stores.fault_file_io import Call, FaultFileIO, failing
from support.tables.handles import catalog_with_database, create_table

pytestmark = pytest.mark.slow

ROWS = pa.schema([("p", pa.string()), pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
MERGED = {"precommit-compact": "true", "bucket": "4"}


def made(warehouse: Path, **options: str) -> Any:
    catalog = catalog_with_database(warehouse)
    given = {**MERGED, **options}
    return create_table(catalog, "t", ROWS, partition_keys=["p"], primary_keys=["p", "k"], options=given)


def write(table: Any, value: str, keys: int = 40) -> None:
    with stream_write_builder(table).open_sync() as writer:
        writer.write(pa.table({"p": ["a", "b"] * keys, "k": range(2 * keys), "v": [value] * (2 * keys)}, schema=ROWS))
        writer.commit()


def streamed(table: Any) -> list[tuple[Any, ...]]:
    """All changes, as the stream tells them."""
    with stream_read_builder(table).with_start("earliest").with_end(latest=True).open_sync() as stream:
        return sorted(tuple(row.values()) for batch in stream for row in batch.data.to_pylist())


def changelogs(table: Any) -> list[str]:
    """Changelog files that lie in the table, from its directory on."""
    root = Path(table.table_path)
    found = (path for path in root.rglob("*") if path.parent.name.startswith("bucket-"))
    return sorted(str(path.relative_to(root)) for path in found if "changelog-" in path.name)


def written(file: str) -> bool:
    return "/changelog-" in file


@pytest.mark.parametrize("format_", ["parquet", "orc", "avro"])
def test_the_changelogs_of_a_partitions_buckets_are_one_file(tmp_path: Path, format_: str) -> None:
    table = made(tmp_path / "m", **{"changelog-producer": "input", "changelog-file.format": format_})
    beside = made(tmp_path / "b", **{"changelog-producer": "input", "precommit-compact": "false"})
    for value in ("x", "y"):
        write(table, value)
        write(beside, value)
    assert len(changelogs(beside)) == 16
    found = changelogs(table)
    assert len(found) == 4
    assert not any(written(file) for file in found)
    assert {merged_changelog_range(file).format for file in found} == {format_}  # type: ignore[union-attr]
    assert streamed(table) == streamed(beside)
    assert len(streamed(table)) == 160


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_the_changelogs_of_compactions_too(tmp_path: Path, producer: str) -> None:
    table = made(tmp_path / "m", **{"changelog-producer": producer})
    beside = made(tmp_path / "b", **{"changelog-producer": producer, "precommit-compact": "false"})
    for value in ("x", "y"):
        for each in (table, beside):
            write(each, value)
            compact(each, full=True)
    assert len(changelogs(beside)) == 16
    assert len(changelogs(table)) == 4
    assert streamed(table) == streamed(beside)
    assert {row[-1] for row in streamed(table)} == {"x", "y"}


@pytest.mark.parametrize(
    ("options", "files"),
    [
        ({"changelog.precommit-compact.buffer-size": "100 b"}, 8),
        ({"compaction.small-file-ratio": "1", "target-file-size": "3 kb"}, 4),
        ({"precommit-compact": "false", "changelog.precommit-compact": "true"}, 8),
    ],
)
def test_only_small_files_are_put_together_and_up_to_the_size_of_a_file(
    tmp_path: Path, options: dict[str, str], files: int
) -> None:
    table = made(tmp_path, **{"changelog-producer": "input", **options})
    write(table, "x")
    assert len(changelogs(table)) == files
    assert len(streamed(table)) == 80


def test_the_former_name_of_the_option_counts(tmp_path: Path) -> None:
    options = {"changelog-producer": "input", "changelog.precommit-compact": "true", "bucket": "4"}
    catalog = catalog_with_database(tmp_path)
    table = create_table(catalog, "t", ROWS, partition_keys=["p"], primary_keys=["p", "k"], options=options)
    write(table, "x")
    assert len(changelogs(table)) == 2


def test_a_changelog_that_is_alone_stays_as_it_is(tmp_path: Path) -> None:
    table = made(tmp_path, **{"changelog-producer": "input", "bucket": "1"})
    write(table, "x")
    assert len(changelogs(table)) == 2
    assert all(written(file) for file in changelogs(table))


def test_files_outside_of_the_table_stay_there(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    external = {"data-file.external-paths": f"file://{outside}", "data-file.external-paths.strategy": "round-robin"}
    table = made(tmp_path / "m", **{"changelog-producer": "input", **external})
    write(table, "x")
    assert changelogs(table) == []
    assert len(list(outside.rglob("*changelog-*"))) == 2
    assert len(streamed(table)) == 80


def test_what_is_not_committed_leaves_no_file(tmp_path: Path) -> None:
    table = made(tmp_path, **{"changelog-producer": "input"})
    with stream_write_builder(table).with_commit_user("u").open_sync() as writer:
        writer.write(pa.table({"p": ["a"] * 8, "k": range(8), "v": ["x"] * 8}, schema=ROWS))
        writer.commit(0)
    before = changelogs(table)
    with stream_write_builder(table).with_commit_user("u").open_sync() as writer:
        writer.write(pa.table({"p": ["a"] * 8, "k": range(8), "v": ["y"] * 8}, schema=ROWS))
        assert writer.commit(0).repeated
    assert changelogs(table) == before


@pytest.mark.parametrize("kind", ["read", "write", "delete"])
def test_a_store_that_fails_meanwhile_leaves_no_file(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path, **{"changelog-producer": "input"})
    files = FaultFileIO()
    table.file_io = files
    refused = failing(PermissionError(errno.EACCES, "told so"))
    wanted = "compacted-changelog-" if kind == "write" else "changelog-"
    failed: list[str] = []

    def fault(call: Call) -> Any:
        if call.kind != kind or not call.name.startswith(wanted) or len(failed) > 1:
            return call.answer()
        failed.append(call.name)
        return refused(call)

    files.wherever(fault)
    if kind == "delete":
        write(table, "x")
        assert len(streamed(table)) == 80
    else:
        with pytest.raises(PaimonStreamError, match="told so"):
            write(table, "x")
    assert failed
    left = changelogs(table)
    assert len(left) == (2 + len(failed) if kind == "delete" else 0)
