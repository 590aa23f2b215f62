"""Batch ranges of Java's tables: ours gives the rows that Java gives, or an error where Java has one.

One in 64 of each table as a stream and one in 192 by the source for Spark; in the long form all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, pairwise

import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import IncrementalDiffScanner, UnsupportedTableError, stream_read_builder
from support.corpus.batch_cases import (
    ARCHIVE,
    BatchOutcome,
    BatchRange,
    Row,
    counted,
    ranges,
    read,
    read_by_spark,
    scenarios,
)
from support.corpus.cases import load, scenario_names, unpack
from support.samples import SOAK, is_drawn

pytestmark = [pytest.mark.slow, pytest.mark.soak]

ONE_IN, ONE_IN_BY_SPARK = (1, 1) if SOAK else (128, 384)
CHAIN_TABLES = ("chain_table", "chain_table_dv")
Reader = Callable[..., BatchOutcome]


def differences(case: BatchRange, read: Reader) -> str:
    """How ours differs from Java; empty: not at all.

    A difference of states is Java's as values: what Java says of its kinds is how rows are stored, and not what became
    of them. Those of a system table are in a column, and Java's.
    """
    kinds = case.system_table is not None or not case.is_diff
    ours = read(case, kinds=kinds)
    if ours.rows is None or case.rows is None:
        return "" if ours.rows is case.rows else f"Java: {case.java_error or 'rows'}, ours: {ours.error or ours.rows}"
    found, wanted = counted(ours.rows), counted(row if kinds else row[1:] for row in case.rows)
    return "" if found == wanted else f"missing: {dict(wanted - found)}, more: {dict(found - wanted)}"


@pytest.mark.parametrize("scenario", [each for each in scenarios() if each not in CHAIN_TABLES])
@pytest.mark.parametrize(("read", "one_in"), [(read, ONE_IN), (read_by_spark, ONE_IN_BY_SPARK)])
def test_ranges_of_a_table(scenario: str, read: Reader, one_in: int) -> None:
    cases = [case for case in ranges(scenario) if is_drawn(f"{scenario}/{case.name}", one_in)]
    wrong = {case.name: problem for case in cases if (problem := differences(case, read))}
    assert not wrong


@pytest.mark.parametrize("scenario", [each for each in scenarios() if each not in CHAIN_TABLES])
def test_ranges_are_cut_anywhere_and_gone_on_with(scenario: str) -> None:
    cases = [case for case in ranges(scenario) if is_drawn(f"cut {scenario}/{case.name}", ONE_IN_BY_SPARK)]
    for case in cases:
        whole, parts = read(case), read(case, cut=True)
        assert (whole.rows is None) is (parts.rows is None), case.name
        assert counted(whole.rows or ()) == counted(parts.rows or ()), case.name


@pytest.mark.parametrize("scenario", CHAIN_TABLES)
def test_chain_tables_are_refused_by_name(scenario: str) -> None:
    for case in ranges(scenario):
        outcome = read_by_spark(case)
        assert isinstance(outcome.error, UnsupportedTableError)
        assert "batch reads are of one branch" in str(outcome.error)


@pytest.mark.parametrize("scenario", scenario_names(ARCHIVE))
def test_kinds_turn_one_state_into_the_other(scenario: str) -> None:
    """Whatever compactions, overwrites and deletes lie in between; tables that cannot be read, or compared, aside."""
    directory = load(ARCHIVE, scenario).warehouse / "d.db" / "t" / "snapshot"
    ids = sorted(int(path.name.removeprefix("snapshot-")) for path in directory.glob("snapshot-*"))
    pairs = [each for each in combinations(ids, 2) if is_drawn(f"{scenario} {each}", ONE_IN)]
    for start, end in pairs:
        difference = _at(scenario, {"incremental-between": f"{start},{end}", "incremental-between-scan-mode": "diff"})
        changes = read(difference)
        if isinstance(changes.error, UnsupportedTableError):
            continue
        assert changes.rows is not None, changes.error
        gone, came = counted(_gone(changes.rows)), counted(_came(changes.rows))
        before, after = state(scenario, start), state(scenario, end)
        assert not gone - before, (start, end)
        assert before - gone + came == after, (start, end)
        if not load(ARCHIVE, scenario).primary_keys:
            assert not counted(read(difference, kinds=False).rows or ()) - after, (start, end)


@pytest.mark.parametrize("scenario", ["range_dedup_none", "range_dedup_lookup", "range_dedup_full-compaction"])
def test_the_scanner_of_differences_turns_one_state_into_the_other(scenario: str) -> None:
    """Whatever no compaction has turned into changelog yet."""
    catalog = CatalogFactory.create({"warehouse": str(unpack(ARCHIVE) / scenario / "wh")})
    changes = IncrementalDiffScanner(catalog.get_table("d.t"))
    reader = stream_read_builder(catalog.get_table("d.t")).new_read()
    for start, end in pairwise(range(1, 8)):
        rows = reader.to_arrow(changes.scan(start, end).splits()).to_pylist()
        told = [(row["_row_kind"], row["id"], row["v"]) for row in rows]
        assert state(scenario, start) - counted(_gone(told)) + counted(_came(told)) == state(scenario, end)


def _gone(rows: Iterable[Row]) -> Iterator[Row]:
    return (row[1:] for row in rows if row[0] in ("-U", "-D"))


def _came(rows: Iterable[Row]) -> Iterator[Row]:
    return (row[1:] for row in rows if row[0] in ("+I", "+U"))


def state(scenario: str, snapshot_id: int) -> Counter[str]:
    """All that is committed at a snapshot."""
    outcome = read_by_spark(_at(scenario, {"scan.snapshot-id": str(snapshot_id)}), kinds=False)
    assert outcome.rows is not None, outcome.error
    return counted(outcome.rows)


def _at(scenario: str, options: dict[str, str]) -> BatchRange:
    fields = tuple(load(ARCHIVE, scenario).fields)
    return BatchRange(scenario, "", options, None, fields, None, (), "")
