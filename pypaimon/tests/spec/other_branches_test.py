"""Tables that Java reads from several branches: what of them is refused, and what is followed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import UnsupportedTableError, stream_read_builder
from support.tables.streamed_table import Table

CHAIN = {"chain-table.enabled": "true", "scan.fallback-snapshot-branch": "snap", "scan.fallback-delta-branch": "Delta"}


def on_branch(warehouse: Path, options: dict[str, str], branch: str = "main") -> Any:
    """A handle of a branch of a table with these options."""
    table = Table(warehouse, **{key.replace(".", "__"): value for key, value in options.items()})
    if branch == "main":
        return table.handle()
    shutil.copytree(table.path / "schema", table.path / "branch" / f"branch-{branch}" / "schema")
    return table.catalog.get_table(f"{table.name}$branch_{branch}")


@pytest.mark.parametrize("branch", ["snap", "delta"])
def test_the_branches_of_a_chain_table_are_ordinary_tables(tmp_path: Path, branch: str) -> None:
    """Their names are compared in any case, as in Java."""
    assert stream_read_builder(on_branch(tmp_path, CHAIN, branch))


@pytest.mark.parametrize("missing", list(CHAIN))
def test_a_table_that_lacks_an_option_of_chain_tables_is_an_ordinary_one(tmp_path: Path, missing: str) -> None:
    assert stream_read_builder(on_branch(tmp_path, {key: CHAIN[key] for key in CHAIN if key != missing}))


@pytest.mark.parametrize("option", ["scan.fallback-branch", "scan.primary-branch"])
def test_a_fallback_branch_is_refused(tmp_path: Path, option: str) -> None:
    with pytest.raises(UnsupportedTableError, match=f"'{option}' = 'b'"):
        stream_read_builder(on_branch(tmp_path, {option: "b"}))
