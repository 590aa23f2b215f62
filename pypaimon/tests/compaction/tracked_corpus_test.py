"""Tables of the corpora whose rows have ids, which Java has written in every way: compaction changes no row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import compact, stream_read_builder
from support.corpus.cases import ARCHIVES, copy_warehouse, load, scenario_names
from support.tables.handles import read_with

pytestmark = pytest.mark.slow


def rows(table: Any, *, by_file: bool) -> list[str]:
    """The rows with their ids, and with their sequence numbers unless these are `by_file`."""
    builder = stream_read_builder(table, view="row_tracking").with_start("latest-full").with_end(latest=True)
    found = [{**row, "_SEQUENCE_NUMBER": None} if by_file else row for row in read_with(builder)]
    return sorted(map(str, found))


COMPARED = {"java-2.1": 3, "java-1.4": 3, "java-0.9": 0, "java-2.1-more": 21}
"""How many tables with row ids an archive has."""


@pytest.mark.parametrize("archive", ARCHIVES)
def test_rows_and_ids_stay(tmp_path: Path, archive: str) -> None:
    compared = compacted = 0
    for name in scenario_names(archive):
        copy = copy_warehouse(load(archive, name), tmp_path / name)
        if not (copy / "d.db" / "t" / "schema").exists():
            continue
        table = CatalogFactory.create({"warehouse": str(copy)}).get_table("d.t")
        options = table.table_schema.options
        if options.get("row-tracking.enabled") != "true":
            continue
        by_file = options.get("data-evolution.enabled") == "true"
        before = rows(table, by_file=by_file)
        report = compact(table, full=True)
        compared += 1
        compacted += bool(report.compacted)
        assert rows(table, by_file=by_file) == before, name
    assert compared == COMPARED[archive]
    assert compacted >= compared - 1
