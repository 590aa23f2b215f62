"""A table that a group reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.groups.members import BUCKETS, write
from support.tables.streamed_table import Table
from support.tables.written_tables import key_value_table


@pytest.fixture
def written(tmp_path: Path) -> Table:
    """It holds the keys 0 to 39, in `BUCKETS` buckets."""
    table = key_value_table(tmp_path, bucket=str(BUCKETS))
    write(table, *range(40))
    return table
