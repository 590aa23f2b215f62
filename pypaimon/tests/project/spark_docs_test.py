"""The page of Spark holds as those of `docs_test.py` do, in `make soak`. Their copy is the whole table."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.docs.doc_pages import DOCS, HOME, ON_SPARK, blocks, run_page, run_python
from support.tables.orders import NEXT_CHANGES, catalog, change, state_of

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.usefixtures("spark")]


@pytest.mark.nightly
@pytest.mark.parametrize("page", ON_SPARK, ids=lambda page: page.stem)
def test_code_runs_and_prints_what_it_says(page: Path, orders_warehouse: Path, loop: asyncio.AbstractEventLoop) -> None:
    run_page(page, orders_warehouse, loop)


@pytest.mark.nightly
def test_the_copy_of_spark_is_the_whole_table_run_after_run(
    expired_orders: Any, tmp_path: Path, loop: asyncio.AbstractEventLoop
) -> None:
    page = DOCS / "spark.md"
    parts = [block for block in blocks(page) if block.language == "python"]
    recipe = [parts[0], next(block for block in parts if 'table="db.copy"' in block.text)]
    for kind, row in [("", None), NEXT_CHANGES[0]]:
        if row is not None:
            change(expired_orders, kind, row)
        namespace: dict[str, Any] = {"__name__": "__main__"}
        for block in recipe:
            run_python(block.text.replace(HOME, str(tmp_path)), f"{page.name}:{block.line}", namespace, loop)
        assert state_of(catalog(tmp_path / "warehouse").get_table("db.copy")) == state_of(expired_orders)
