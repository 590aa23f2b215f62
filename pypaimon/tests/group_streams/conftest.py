"""A table that a group reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.groups.members import BUCKETS, write
from support.tables.written_tables import Written


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """It holds the keys 0 to 39, in `BUCKETS` buckets."""
    table = Written(tmp_path, bucket=str(BUCKETS))
    write(table, *range(40))
    return table
