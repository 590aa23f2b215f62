"""Fixtures that any test may use: a warehouse of its own, and a clock that stands in UTC."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from pypaimon import CatalogFactory

# Local time zones differ between machines; values that depend on one are tested with an explicit one.
os.environ["TZ"] = "UTC"
time.tzset()


@pytest.fixture
def warehouse(tmp_path: Path) -> Any:
    """A filesystem catalog of pypaimon over an empty warehouse, with a database `db`."""
    catalog = CatalogFactory.create({"warehouse": str(tmp_path / "warehouse")})
    catalog.create_database("db", True)
    return catalog
