"""Fixtures of the tests that run the documentation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import example_tables
from support.tables import orders


@pytest.fixture
def orders_warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A warehouse with the tables of the examples, in a directory that a page may write to."""
    example_tables.main([str(tmp_path / "warehouse")])
    monkeypatch.chdir(tmp_path)
    return tmp_path / "warehouse"


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
