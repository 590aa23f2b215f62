"""What the documentation copies is the whole table, also where its first snapshots have expired, and run after run."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from docs_test import DOCS, PAGES, blocks, run_program, run_python
from orders import catalog, change, create_orders, events
from tables import expire

_HOME = "/path/to"
_TARGETS = ("apply_to_dict(", "DuckDBTarget(", "PaimonTarget(")
COPYING = [page for page in PAGES if any(name in block.text for block in blocks(page) for name in _TARGETS)]
NEXT = [
    ("-D", (1, "placed", 1.0)),
    ("+U", (2, "paid", 2.0)),
    ("+I", (7, "placed", 7.0)),
    ("-D", (3, "placed", 3.0)),
]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Orders of which most were last changed in snapshots that have expired."""
    monkeypatch.chdir(tmp_path)
    tables = catalog(tmp_path / "warehouse")
    found = create_orders(tables)
    change(found, "+I", *((number, "placed", float(number)) for number in range(1, 6)))
    change(found, "+U", (5, "paid", 5.0))
    change(found, "-D", (4, "placed", 4.0))
    change(found, "+I", (6, "placed", 6.0))
    expire(Path(found.table_path), 4)
    events(tables)
    return found


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """The loop that the blocks of a page await on."""
    found = asyncio.new_event_loop()
    yield found
    found.close()


def state_of(table: Any) -> dict[int, str]:
    """The table as pypaimon's own batch read gives it."""
    reader = table.new_read_builder().with_projection(["id", "status"])
    rows = reader.new_read().to_arrow(reader.new_scan().plan().splits()).to_pylist()
    return {row["id"]: row["status"] for row in rows}


def copies(page: Path, namespace: dict[str, Any], warehouse: Path) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """What the targets of a page hold, after its blocks were run."""
    text = page.read_text(encoding="utf-8")
    if "apply_to_dict(" in text:
        yield "dict", [(key, row["status"]) for key, row in namespace["state"].items()]
    if "DuckDBTarget(" in text:
        with duckdb.connect("orders.db") as database:
            yield "DuckDB", database.execute("SELECT id, status FROM orders").fetchall()
    if "PaimonTarget(" in text:
        yield "Paimon", list(state_of(catalog(warehouse).get_table("db.copy")).items())


@pytest.mark.parametrize("page", COPYING, ids=lambda page: page.stem)
def test_copies_are_the_whole_table_run_after_run(
    page: Path, table: Any, tmp_path: Path, loop: asyncio.AbstractEventLoop
) -> None:
    """Each run is one of a new program: nothing is left of the one before but what it saved."""
    for kind, row in [("", None), *NEXT]:
        if row is not None:
            change(table, kind, row)
        namespace: dict[str, Any] = {"__name__": "__main__"}
        for block in blocks(page):
            if block.language == "python" and "asyncio.run(" not in block.text:
                run_python(block.text.replace(_HOME, str(tmp_path)), f"{page.name}:{block.line}", namespace, loop)
        for name, rows in copies(page, namespace, tmp_path / "warehouse"):
            assert sorted(rows) == sorted(state_of(table).items()), name
        namespace.clear()
        gc.collect()


def test_the_pages_with_recipes_are_found() -> None:
    assert {"README", "operations"} <= {page.stem for page in COPYING}


def test_the_quick_start_prints_the_whole_table(table: Any, tmp_path: Path, loop: asyncio.AbstractEventLoop) -> None:
    """Both its program, which goes on for ever, and the loop that begins with the state of an early snapshot."""
    program, follows, *_ = [block.text for block in blocks(DOCS / "quick-start.md") if block.language == "python"]
    expected = state_of(table)
    lines = run_program(program.replace(_HOME, str(tmp_path)), len(expected))
    for printed in (lines, run_python(follows.replace(_HOME, str(tmp_path)), "quick-start", {}, loop)):
        for number, status in expected.items():
            assert f"'id': {number}, 'status': '{status}'" in printed
