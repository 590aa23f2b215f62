"""NaN, infinities and both zeros beside live Java: the greatest and least of them, and which of them is newer."""

from __future__ import annotations

from itertools import compress, product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import compact, stream_write_builder
from support.java.live import LiveJava

pytestmark = pytest.mark.java

# In the order of Java's `Double.compare`.
FLOATS: list[Any] = ["-Infinity", -1.5, -0.0, 0.0, 1.5, "Infinity", "NaN"]
PAIRS = list(product(range(len(FLOATS)), repeat=2))
COLUMNS = {"d": pa.float64(), "e": pa.float64(), "f": pa.float32(), "g": pa.float32()}
AGGREGATION = {"d": "max", "e": "min", "f": "max", "g": "min"}


def rows_in_java(java: LiveJava) -> list[list[str]]:
    """Without row kinds, in the order of their keys."""
    reply = java.call("read", options={"scan.mode": "latest-full"})
    rows = [list(map(str, row[1:])) for plan in reply["plans"] for split in plan["splits"] for row in split["rows"]]
    return sorted(rows, key=lambda row: int(row[0]))


def merged(java: LiveJava, warehouse: Path, options: dict[str, str]) -> list[Any]:
    """What Java reads of pairs of records: those that it wrote, the same compacted by ours, those that ours wrote."""
    found = []
    for name in ("java", "ours"):
        kinds = {pa.float64(): "DOUBLE", pa.float32(): "FLOAT"}
        java.call(
            "create", warehouse=str(warehouse / name), partition_keys=[], primary_keys=["k"],
            fields=[["k", "BIGINT NOT NULL"], *([column, kinds[kind]] for column, kind in COLUMNS.items())],
            options={"bucket": "1", "write-only": "true", **options},
        )  # fmt: skip
        table = CatalogFactory.create({"warehouse": str(warehouse / name)}).get_table("d.t")
        if name == "java":
            for turn in (0, 1):
                rows = [["+I", key, *[FLOATS[pair[turn]]] * len(COLUMNS)] for key, pair in enumerate(PAIRS)]
                java.call("write", flushes=[rows])
            found.append(rows_in_java(java))
            assert compact(table, full=True) is not None
        else:
            values = [float(FLOATS[pair[turn]]) for turn in (0, 1) for pair in PAIRS]
            keys = pa.array([*range(len(PAIRS))] * 2)
            with stream_write_builder(table).open_sync() as writer:
                writer.write(pa.table({"k": keys, **{column: pa.array(values, of) for column, of in COLUMNS.items()}}))
                writer.commit()
        found.append(rows_in_java(java))
    return found


GREATER = [str(float(FLOATS[max(pair)])).replace("inf", "Infinity").replace("nan", "NaN") for pair in PAIRS]


def test_the_greatest_and_the_least(java: LiveJava, tmp_path: Path) -> None:
    functions = {f"fields.{name}.aggregate-function": function for name, function in AGGREGATION.items()}
    javas, compacted, ours = merged(java, tmp_path, {"merge-engine": "aggregation", **functions})
    assert [row[1] for row in javas] == GREATER
    assert compacted == javas
    assert ours == javas


@pytest.mark.parametrize("sequence", ["d", "f"])
def test_which_is_newer(java: LiveJava, tmp_path: Path, sequence: str) -> None:
    javas, compacted, ours = merged(java, tmp_path, {"sequence.field": sequence})
    assert [row[1] for row in ours] == GREATER
    assert compacted == ours
    # Java 1.4 compares sequences by < and >, so that zeros are equal, and NaN to every number; Java 2 by `compare`.
    told = [first < second or first > second for first, second in product(map(float, FLOATS), repeat=2)]
    assert list(compress(javas, told)) == list(compress(ours, told))
