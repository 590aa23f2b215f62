"""Fixtures of the tests of databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.tables.databases import Database


@pytest.fixture
def database(tmp_path: Path) -> Database:
    """An empty one in the warehouse `tmp_path/w`."""
    return Database(tmp_path / "w")
