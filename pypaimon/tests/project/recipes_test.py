"""What the documentation copies is the whole table, also where its first snapshots have expired, and run after run."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from support.docs.doc_pages import DOCS, HOME, PAGES, blocks, run_program, run_python
from support.samples import some
from support.tables.orders import NEXT_CHANGES, catalog, change, state_of

pytestmark = [pytest.mark.slow, pytest.mark.soak]

_TARGETS = ("DictTarget(", "DuckDBTarget(", "PaimonTarget(", "SqliteCopy(")
COPYING = [page for page in PAGES if any(name in block.text for block in blocks(page) for name in _TARGETS)]


def copies(page: Path, namespace: dict[str, Any], warehouse: Path) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """What the targets of a page hold, after its blocks were run."""
    text = page.read_text(encoding="utf-8")
    if "DictTarget(" in text:
        yield "dict", [(key, row["status"]) for key, row in namespace["orders"].rows.items()]
    if "DuckDBTarget(" in text:
        with duckdb.connect("orders.db") as database:
            yield "DuckDB", database.execute("SELECT id, status FROM orders").fetchall()
    if "SqliteCopy(" in text:
        with closing(sqlite3.connect("copy.sqlite")) as copy:
            yield "SQLite", copy.execute("SELECT id, status FROM copy").fetchall()
    if "PaimonTarget(" in text:
        yield "Paimon", list(state_of(catalog(warehouse).get_table("db.copy")).items())


@pytest.mark.parametrize("page", COPYING, ids=lambda page: page.stem)
def test_copies_are_the_whole_table_run_after_run(
    page: Path, expired_orders: Any, tmp_path: Path, loop: asyncio.AbstractEventLoop
) -> None:
    """Each run is one of a new program: nothing is left of the one before but what it saved."""
    for kind, row in [("", None), *some(page.stem, NEXT_CHANGES, 1)]:
        if row is not None:
            change(expired_orders, kind, row)
        namespace: dict[str, Any] = {"__name__": "__main__"}
        for block in blocks(page):
            if block.language == "python" and not any(call in block.text for call in ("asyncio.run(", "check_target(")):
                run_python(block.text.replace(HOME, str(tmp_path)), f"{page.name}:{block.line}", namespace, loop)
        for name, rows in copies(page, namespace, tmp_path / "warehouse"):
            assert sorted(rows) == sorted(state_of(expired_orders).items()), name
        namespace.clear()
        gc.collect()


def test_the_pages_with_recipes_are_found() -> None:
    assert {"README", "operations", "targets"} <= {page.stem for page in COPYING}


def test_the_quick_start_prints_the_whole_table(
    expired_orders: Any, tmp_path: Path, loop: asyncio.AbstractEventLoop
) -> None:
    """Both its program, which goes on for ever, and the loop that begins with the state of an early snapshot."""
    _, program, follows, *_ = [block.text for block in blocks(DOCS / "index.md") if block.language == "python"]
    expected = state_of(expired_orders)
    lines = run_program(program.replace(HOME, str(tmp_path)), len(expected))
    for printed in (lines, run_python(follows.replace(HOME, str(tmp_path)), "index", {}, loop)):
        for number, status in expected.items():
            assert f"'id': {number}, 'status': '{status}'" in printed
