"""A compaction asks for a small file once, and for none of its bytes twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pypaimon.streaming import compact, stream_write_builder
from support.stores.counting_file_io import CountingFileIO
from support.tables.handles import catalog_with_database, create_table

pytestmark = pytest.mark.slow

KEYED = {"bucket": "1"}
ROWS = 3000
SMALL = {"target-file-size": "40 kb"}
"""The files are large beside it, so that those whose keys overlap no other move as they are."""


@pytest.mark.parametrize(
    ("options", "commits", "moves"),
    [
        ({"compaction.min.file-num": "2"}, 3, False),
        (KEYED, 3, False),
        (KEYED | {"file.format": "orc"}, 3, False),
        (KEYED | {"file.format": "avro"}, 3, False),
        (KEYED | {"changelog-producer": "lookup"}, 3, False),
        # These are looked into first: no delete may move, whatever the manifest says.
        (KEYED | SMALL, 1, True),
        (KEYED | SMALL | {"changelog-producer": "lookup"}, 1, True),
        (KEYED | SMALL | {"deletion-vectors.enabled": "true"}, 1, True),
    ],
)
def test_small_files_are_asked_for_once(tmp_path: Path, options: dict[str, str], commits: int, moves: bool) -> None:
    catalog = catalog_with_database(tmp_path, "d")
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("a", pa.float64()), ("b", pa.float64())])
    keys = ["id"] if "bucket" in options else []
    # Written in one file, whatever size files are compacted to.
    table = create_table(catalog, "t", columns, primary_keys=keys, options=options, database="d")
    numbers = np.random.default_rng(7)
    with (
        stream_write_builder(table.copy({"target-file-size": "1 gb"})).with_commit_user("writer").open_sync() as writer
    ):
        for _ in range(commits):
            values = {name: numbers.random(ROWS) for name in "ab"}
            writer.write(pa.table({"id": numbers.permutation(ROWS), **values}))
            writer.commit()
    sizes = {path.name: path.stat().st_size for path in tmp_path.rglob("data-*")}
    assert len(sizes) == commits
    table.file_io = counted = CountingFileIO()
    report = compact(table, full=True)
    assert report.before.files == len(sizes)
    assert (report.after == report.before) == moves
    assert {name: count for name, count in counted.bytes_read.items() if name.startswith("data-")} == sizes
    assert all(counted.reads[name] == 1 for name in sizes)
