"""Fixtures of the tests that run the documentation."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import example_tables
from support.tables import orders


@pytest.fixture(scope="session")
def _example_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    warehouse = tmp_path_factory.mktemp("examples") / "warehouse"
    example_tables.main([str(warehouse)])
    return warehouse


@pytest.fixture
def orders_warehouse(_example_tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A warehouse with the tables of the examples, in a directory that a page may write to."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(_example_tables, tmp_path / "warehouse"))


@pytest.fixture
def expired_orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """As `orders_warehouse`, but its orders are those of `orders.expired_orders`: that table."""
    monkeypatch.chdir(tmp_path)
    catalog = orders.catalog(tmp_path / "warehouse")
    table = orders.expired_orders(catalog)
    orders.events(catalog)
    return table


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """The loop that all blocks of a page await on."""
    found = asyncio.new_event_loop()
    yield found
    found.close()
