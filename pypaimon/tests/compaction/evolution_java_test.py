"""Tables with data evolution next to Java: the same files become one, and each goes on with what the other made."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import compact, stream_read_builder
from support.java.live import LiveJava
from support.samples import SOAK, sample_seed
from support.tables.handles import current_files, read_with

pytestmark = [pytest.mark.java, pytest.mark.slow]

TURNS = 60 if SOAK else 6
OPTIONS = {
    "row-tracking.enabled": "true", "data-evolution.enabled": "true", "target-file-size": "8 kb",
    "source.split.open-file-cost": "1 kb", "compaction.min.file-num": "3",
}  # fmt: skip


class EvolvingPair:
    """A table of live Java that is compacted by Java and by ours, from the same state."""

    def __init__(self, java: LiveJava, directory: Path, fields: list[list[str]], partition_keys: list[str]) -> None:
        self._java = java
        self._warehouse = directory / "warehouse"
        self._fields = fields
        self._partitioned = bool(partition_keys)
        self._random = random.Random(f"{sample_seed()} {fields} {partition_keys}")
        java.call(
            "create", warehouse=str(self._warehouse), fields=fields, partition_keys=partition_keys, primary_keys=[],
            options=OPTIONS,
        )  # fmt: skip
        self._number = 0

    @property
    def table(self) -> Any:
        return CatalogFactory.create({"warehouse": str(self._warehouse)}).get_table("d.t")

    def change(self) -> None:
        """Append rows, or write columns of some that are there."""
        if self._number and self._random.random() < 0.6:
            names = [name for name, _ in self._fields if name != "p"]
            columns = self._random.sample(names[:-1], self._random.randint(1, len(names) - 1)) + (
                names[-1:] if self._random.random() < 0.3 else []
            )
            rows = [["+I", *(self._value(name) for name in columns)] for _ in range(3)]
            self._java.call("evolve", columns=columns, rows=rows, range=self._random.randint(0, 9))
            return
        count = self._random.choice([1, 3, 40])
        rows = [["+I", *(self._value(name) for name, _ in self._fields)] for _ in range(count)]
        self._java.call("write", flushes=[rows])
        self._number += count

    def _value(self, name: str) -> Any:
        return {
            "k": self._random.randint(0, 10**6),
            "v": "".join(self._random.choices("abcdef", k=self._random.choice([3, 90]))),
            "p": self._random.randint(0, 1),
            "n": self._random.choice([None, 1, 2]),
            "b": self._random.choice([None, "YmxvYg==", "YQ=="]),
        }[name]

    def layout(self) -> list[tuple[Any, ...]]:
        """What the metadata of the files says, but not their source: Java 1.4 calls them appended, 2.1 compacted."""
        return sorted(
            (
                file.file_name if str(file.file_name).endswith(".blob") else "", file.first_row_id, file.row_count,
                file.min_sequence_number, file.max_sequence_number, file.schema_id,
                tuple(file.write_cols or ()),
            )
            for file in current_files(self.table)
        )  # fmt: skip

    def rows(self) -> list[list[Any]]:
        """As Java reads them, with their ids and the sequence numbers of their files."""
        reply = self._java.call("read", options={"scan.mode": "latest-full"}, system_table="row_tracking")
        assert reply["end"] == "waiting", reply
        rows = [row for plan in reply["plans"] for split in plan["splits"] for row in split["rows"]]
        return sorted(rows, key=lambda row: int(row[-2]))

    def ours(self) -> list[dict[str, Any]]:
        builder = stream_read_builder(self.table, view="row_tracking").with_end(latest=True)
        return sorted(read_with(builder), key=lambda row: row["_ROW_ID"])

    def after(self, compaction: Callable[[], Any]) -> tuple[Any, ...]:
        compaction()
        return self.layout(), self.rows(), self.ours()

    def compare(self, *, go_on_with_java: bool) -> bool:
        """Whether something was compacted."""
        before, rows, ours = self.layout(), self.rows(), self.ours()
        aside = self._warehouse.parent / "aside"
        shutil.copytree(self._warehouse / "d.db", aside)
        orders = [self._java_compacts, lambda: compact(self.table)]
        found = []
        for each in orders if not go_on_with_java else reversed(orders):
            if found:
                shutil.rmtree(self._warehouse / "d.db")
                shutil.copytree(aside, self._warehouse / "d.db")
            found.append(self.after(each))
        shutil.rmtree(aside)
        assert found[0] == found[1]
        assert [row[:-1] for row in found[0][1]] == [row[:-1] for row in rows]
        assert [_untold(row) for row in found[0][2]] == [_untold(row) for row in ours]
        return found[0][0] != before

    def _java_compacts(self) -> None:
        self._java.call("compact", full=True, options={})

    def check_blobs(self) -> int:
        """Compact files of blobs too. Returns how many files there are fewer."""
        before, rows, ours = self.layout(), self.rows(), self.ours()
        compact(self.table.copy({"blob-compaction.enabled": "true"}))
        assert [row[:-1] for row in self.rows()] == [row[:-1] for row in rows]
        assert [_untold(row) for row in self.ours()] == [_untold(row) for row in ours]
        return len(before) - len(self.layout())


def _untold(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "_SEQUENCE_NUMBER"}


@pytest.mark.parametrize("kind", ["plain", "partitioned", "blobs"])
def test_java_compacts_the_same_files_to_the_same(java: LiveJava, tmp_path: Path, kind: str) -> None:
    fields = [["k", "BIGINT"], ["v", "STRING"], ["n", "INT"]]
    if kind == "partitioned":
        fields.insert(0, ["p", "INT"])
    if kind == "blobs":
        fields.append(["b", "BLOB"])
    pair = EvolvingPair(java, tmp_path, fields, ["p"] if kind == "partitioned" else [])
    made = 0
    for turn in range(TURNS):
        for _ in range(4):
            pair.change()
        made += pair.compare(go_on_with_java=turn % 2 == 1)
    assert made > TURNS // 3


def test_java_reads_blobs_of_compacted_files(java: LiveJava, tmp_path: Path) -> None:
    pair = EvolvingPair(java, tmp_path, [["k", "BIGINT"], ["v", "STRING"], ["n", "INT"], ["b", "BLOB"]], [])
    fewer = 0
    for _ in range(TURNS):
        for _ in range(4):
            pair.change()
        fewer += pair.check_blobs()
    assert fewer > 2 * TURNS
    rows = pair.rows()
    java.call("expire", options={"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
    assert pair.rows() == rows
    root = Path(str(pair.table.table_path))
    assert {path.name for path in root.glob("bucket-0/*")} == {file.file_name for file in current_files(pair.table)}
