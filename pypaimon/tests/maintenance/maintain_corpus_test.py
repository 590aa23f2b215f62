"""Maintenance of the tables of the corpus: all that snapshots, tags and branches need stays, and no other file."""

from __future__ import annotations

from pathlib import Path

import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import MaintenancePolicy, maintain
from support.corpus.cases import ARCHIVES, copy_warehouse, load, scenario_names
from support.samples import SOAK, is_drawn, seeded
from support.tables.named_files import files_of, needed_files

pytestmark = [pytest.mark.slow, pytest.mark.soak]

DAMAGED = "corrupt_snapshot_file"
CASES = [(archive, name) for archive in ARCHIVES for name in scenario_names(archive) if name != DAMAGED]


@pytest.mark.parametrize(
    ("archive", "name"),
    [case for case in CASES if SOAK or is_drawn(f"maintain {case[0]} {case[1]}", one_in=9)],
)
def test_what_is_needed_stays_and_nothing_else(archive: str, name: str, tmp_path: Path) -> None:
    warehouse = copy_warehouse(load(archive, name), tmp_path)
    table = warehouse / "d.db" / "t"
    needed, given = needed_files(table), files_of(table)
    most = seeded(name).choice((1, 2, 3, 5))
    handle = CatalogFactory.create({"warehouse": str(warehouse)}).get_table("d.t")
    maintain(handle, MaintenancePolicy(min_snapshots=1, max_snapshots=most))
    after, left = needed_files(table), files_of(table)
    assert not after - left - (needed - given), "a file is lost"
    assert not left - after - (given - needed), "a file is left"
