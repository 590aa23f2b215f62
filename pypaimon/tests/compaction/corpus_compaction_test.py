"""Tables of the corpora, which Java has written in every way: compaction changes no row, or refuses them by name.

`-k refused -s` prints the share of the refused ones. Rows of all tables are compared in the long form.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import compact, stream_read_builder
from pypaimon.streaming.compaction.compaction_options import check_compactable, under_latest_schema
from pypaimon.streaming.errors import CorruptTableError, UnsupportedTableError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.corpus.cases import ARCHIVES, Read, Scenario, copy_warehouse, load, scenario_names
from support.corpus.outcome import Outcome
from support.corpus.runner import run_read, settings_for
from support.samples import some
from support.tables.handles import read_with

pytestmark = [pytest.mark.slow, pytest.mark.soak]

TABLES = [
    (archive, name)
    for archive in ARCHIVES
    for name in scenario_names(archive)
    if (load(archive, name).warehouse / "d.db" / "t" / "schema").exists()
]
REFUSED_VALUES = {
    ("java-2.1", "types_append_orc"): "holds a time before 1970",
    ("java-0.9", "types_append_orc"): "holds a time before 1970",
}
"""Refused when they are written."""
DAMAGED = {("java-2.1", "lost_data_file"), ("java-2.1", "corrupt_snapshot_file"), ("java-1.4", "corrupt_snapshot_file")}
SHOWN_LATER = {
    *(("java-2.1", f"pk_{name}") for name in ("dedup_full-compaction", "small_buffer_full-compaction")),
    *(("java-2.1", f"pk_{name}") for name in ("write_only_lookup", "write_only_full-compaction")),
    *(("java-2.1", name) for name in ("pk_first_row_write_only", "compacted_full", "postpone_none", "postpone_lookup")),
    *(("java-1.4", name) for name in ("pk_write_only_full-compaction", "postpone_lookup")),
    *(("java-2.1-more", f"range_{name}") for name in ("dedup_full-compaction", "partial_update")),
    *(("java-2.1-more", name) for name in ("dynamic_bucket_partial_update", "cross_partition_full_compaction")),
    ("java-2.1-more", "postpone_compacted_full_compaction"),
}
"""Tables with commits that Java's streams do not show before a compaction."""
ONCE_REFUSED = [
    ("java-2.1", "types_append_parquet"),
    ("java-2.1", "types_pk_input"),
    ("java-1.4", "types_append_parquet"),
    ("java-2.1-more", "chain_table_dv"),
    ("java-2.1-more", "pk_clustering_override"),
    ("java-2.1-more", "pk_clustering_override_first_row"),
    ("java-2.1-more", "row_format_append"),
    ("java-2.1-more", "row_format_pk_none"),
]
COMPARED = sorted({*some("compacted tables of the corpus", TABLES, 8), *REFUSED_VALUES, *ONCE_REFUSED})


def test_few_tables_are_refused() -> None:
    found = {}
    for archive, name in TABLES:
        table = CatalogFactory.create({"warehouse": str(load(archive, name).warehouse)}).get_table("d.t")
        try:
            check_compactable(under_latest_schema(PaimonTable(table), TableDirectory.of(table)))
        except UnsupportedTableError as error:
            found[archive, name] = str(error)
    refused = {**found, **REFUSED_VALUES}
    print(f"{len(refused)} of {len(TABLES)} tables are not compacted ({len(refused) / len(TABLES):.1%}):")
    for place, reason in refused.items():
        print(*place, reason)
    assert (len(refused), len(TABLES)) == (2, 212)


@pytest.mark.parametrize(("archive", "name"), COMPARED)
def test_rows_stay_those_that_java_reads(tmp_path: Path, archive: str, name: str) -> None:
    place, scenario = (archive, name), load(archive, name)
    copy = replace(scenario, warehouse=copy_warehouse(scenario, tmp_path))
    table = CatalogFactory.create({"warehouse": str(copy.warehouse)}).get_table("d.t")
    read = full_read(scenario)
    wanted = ours(table) if read is None else state(read.java)
    wrong = REFUSED_VALUES.get(place)
    if wrong is not None:
        with pytest.raises(UnsupportedTableError, match=wrong):
            compact(table, full=True)
    elif place in DAMAGED:
        with pytest.raises(CorruptTableError):
            compact(table, full=True)
        return
    else:
        for branch in branches(table):
            compact(branch, full=True)
    found = ours(table) if read is None else state(run_read(copy, read, settings_for(copy, read)))
    assert (found == wanted) is (place not in SHOWN_LATER), (found - wanted, wanted - found)


def ours(table: Any) -> Counter[str]:
    read = stream_read_builder(table).with_start("latest-full").with_end(latest=True).with_include_row_kind(False)
    return Counter(map(str, read_with(read)))


def branches(table: Any) -> list[Any]:
    """The branches of a chain table, which have its rows; else the table."""
    options = table.table_schema.options
    if options.get("chain-table.enabled") != "true":
        return [table]
    chain = (options[f"scan.fallback-{each}-branch"] for each in ("snapshot", "delta"))
    catalog = CatalogFactory.create({"warehouse": str(Path(str(table.table_path)).parents[1])})
    return [catalog.get_table(f"d.t$branch_{each}") for each in chain]


def full_read(scenario: Scenario) -> Read | None:
    """A read of all rows by Java, which some tables do not have."""
    plain = ({}, {"scan.mode": "latest-full"})
    left_out = ("filter", "projection", "bucket", "shard", "branch", "system_table", "restore")
    reads = (each for each in scenario.reads.values() if each.starts_full and each.options in plain)
    return next((each for each in reads if all(getattr(each, name) is None for name in left_out)), None)


def state(outcome: Outcome) -> Counter[str]:
    """The rows of the first plan. Where it is one file, Java gives the kind that is stored."""
    rows = (row for plan in outcome.plans[:1] for split in plan.splits for row in split.rows)
    return Counter(json.dumps(["+I" if row[0] == "+U" else row[0], *row[1:]]) for row in rows)


def rows(table: Any, *, by_file: bool) -> list[str]:
    """The rows with their ids, and with their sequence numbers unless these are `by_file`."""
    builder = stream_read_builder(table, view="row_tracking").with_start("latest-full").with_end(latest=True)
    found = [{**row, "_SEQUENCE_NUMBER": None} if by_file else row for row in read_with(builder)]
    return sorted(map(str, found))


TRACKED = {"java-2.1": 3, "java-1.4": 3, "java-0.9": 0, "java-2.1-more": 21}
"""How many tables with row ids an archive has."""


@pytest.mark.parametrize("archive", ARCHIVES)
def test_rows_and_ids_stay(tmp_path: Path, archive: str) -> None:
    compared = compacted = 0
    for _, name in (place for place in TABLES if place[0] == archive):
        scenario = load(archive, name)
        if scenario.table_options.get("row-tracking.enabled") != "true":
            continue
        copy = copy_warehouse(scenario, tmp_path / name)
        table = CatalogFactory.create({"warehouse": str(copy)}).get_table("d.t")
        by_file = table.table_schema.options.get("data-evolution.enabled") == "true"
        before = rows(table, by_file=by_file)
        report = compact(table, full=True)
        compared += 1
        compacted += bool(report.compacted)
        assert rows(table, by_file=by_file) == before, name
    assert compared == TRACKED[archive]
    assert compacted >= compared - 1
