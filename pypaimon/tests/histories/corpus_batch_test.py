"""Batch ranges of Java's tables: the Spark source gives the rows that Java gives, or an error where Java has one.

One in eight of each table, others with each commit; in the long form all.
"""

from __future__ import annotations

import os
from itertools import pairwise

import pytest
from commit_seed import how_to_repeat, is_drawn
from corpus_batch_cases import ARCHIVE, BatchRange, counted, ranges, read, scenarios
from corpus_cases import unpack
from pypaimon import CatalogFactory

from pypaimon.streaming import IncrementalDiffScanner, UnsupportedTableError, stream_read_builder

ONE_IN = 1 if os.environ.get("SOAK") else 8
CHAIN_TABLES = ("chain_table", "chain_table_dv")


def differences(case: BatchRange) -> str:
    """How ours differs from Java; empty: not at all.

    Java drops from a difference of states what is gone, unless rows say of what kind they are; `_row_kind` says so.
    """
    ours = read(case)
    if ours.rows is None or case.rows is None:
        return "" if ours.rows is case.rows else f"Java: {case.java_error or 'rows'}, ours: {ours.error or ours.rows}"
    told = case.system_table is not None or not case.is_diff
    found, wanted = counted(row for row in ours.rows if told or row[0] != "-D"), counted(case.rows)
    if found == wanted and case.is_diff:
        found = counted(read(case, kinds=False).rows or ())
        wanted = counted(row[1:] for row in case.rows)
    return "" if found == wanted else f"missing: {dict(wanted - found)}, more: {dict(found - wanted)}"


@pytest.mark.parametrize("scenario", [each for each in scenarios() if each not in CHAIN_TABLES])
def test_ranges_of_a_table(scenario: str) -> None:
    print(how_to_repeat())
    cases = [case for case in ranges(scenario) if is_drawn(f"{scenario}/{case.name}", ONE_IN)]
    wrong = {case.name: problem for case in cases if (problem := differences(case))}
    assert not wrong


@pytest.mark.parametrize("scenario", CHAIN_TABLES)
def test_chain_tables_are_refused_by_name(scenario: str) -> None:
    for case in ranges(scenario):
        outcome = read(case)
        assert isinstance(outcome.error, UnsupportedTableError)
        assert "one branch" in str(outcome.error)


@pytest.mark.parametrize("scenario", ["range_dedup_none", "range_dedup_lookup", "range_dedup_full-compaction"])
def test_net_changes_turn_one_state_into_the_other(scenario: str) -> None:
    """Whatever no compaction has turned into changelog yet."""
    catalog = CatalogFactory.create({"warehouse": str(unpack(ARCHIVE) / scenario / "wh")})
    changes = IncrementalDiffScanner(catalog.get_table("d.t"))
    reader = stream_read_builder(catalog.get_table("d.t")).new_read()
    ids = [entry.id for entry in changes._directory.snapshots.list_snapshots()]
    states = {number: state(scenario, number) for number in ids}
    for start, end in pairwise(ids):
        rows = dict(states[start])
        for change in reader.to_arrow(changes.scan(start, end).splits()).to_pylist():
            key = change["id"]
            assert (key in rows) is (change["_row_kind"] != "+I") or change["_row_kind"] == "+U"
            if change["_row_kind"] in ("-U", "-D"):
                assert rows.pop(key) == change["v"]
            else:
                rows[key] = change["v"]
        assert rows == states[end], (start, end)


def state(scenario: str, snapshot_id: int) -> dict[int, str | None]:
    """All that is committed at a snapshot, by key."""
    (case,) = (each for each in ranges(scenario) if each.name == "between_0_1")
    at = BatchRange(scenario, "", {"scan.snapshot-id": str(snapshot_id)}, None, case.columns, None, (), "")
    outcome = read(at)
    assert outcome.rows is not None
    return {key: value for _, key, value in outcome.rows}
