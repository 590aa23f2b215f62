"""Spark 4.0 and 4.1, which know no limits of a Python source: said by `load()`; without limits they read the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.spark.queries import options
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

# Those releases lack the module, and call `latestOffset` without arguments.
PROGRAM = """
import sys
import pyspark.sql.datasource
sys.modules["pyspark.sql.streaming.datasource"] = None
from pypaimon.spark.source import PaimonDataSource
source = PaimonDataSource({options!r})
reader = source.streamReader(source.schema())
start = reader.initialOffset()
end = reader.latestOffset()
assert reader.latestOffset() == end
print(sum(batch.num_rows for task in reader.partitions(start, end) for batch in reader.read(task)))
"""


def run(given: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-c", PROGRAM.format(options=given))
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)


def test_limits_are_refused_by_load_where_spark_does_not_ask_for_them(tmp_path: Path) -> None:
    table = Table(tmp_path / "warehouse")
    table.commit([1, 2])
    table.commit([3])
    whole = run(options(table))
    assert whole.stdout.strip() == "3", whole.stderr
    refused = run({**options(table), "maxrowspertrigger": "1"})
    assert "Spark 4.2 and later apply them. Leave them out" in refused.stderr
