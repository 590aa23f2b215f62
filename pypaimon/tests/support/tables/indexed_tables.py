"""Tables with file indexes that Java has written, kept as an archive; with live Java this module writes it anew.

All have the columns of `FIELDS`, statistics of no column but the key, and several small files.
"""

from __future__ import annotations

import random
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from pypaimon import CatalogFactory

from support.java.live import LiveJava
from support.repository import TESTS
from support.tables.handles import EVOLUTION

ARCHIVE = TESTS / "reading" / "java_indexed_tables.tar.xz"
FIELDS = (
    ("k", "INT NOT NULL"),
    ("n", "INT"),
    ("s", "STRING"),
    ("b", "BIGINT"),
    ("d", "DECIMAL(10, 2)"),
    ("t", "TIMESTAMP(3)"),
    ("f", "DOUBLE"),
)
_ALL = {"metadata.stats-mode": "none", "write-only": "true"}
_OF_TWO = {
    "file-index.bloom-filter.columns": "s",
    "file-index.bloom-filter.s.items": "64",
    "file-index.bitmap.columns": "n,s",
}
"""Java cannot write some columns alone where others have indexes."""
_INDEXES = _OF_TWO | {
    "file-index.bloom-filter.columns": "s,k",
    "file-index.bloom-filter.k.items": "64",
    "file-index.range-bitmap.columns": "t,f",
    "file-index.range-bitmap.t.chunk-size": "64 b",
    "file-index.range-bitmap.f.chunk-size": "64 b",
    "file-index.bsi.columns": "b,d",
}
_EMBEDDED, _BESIDE = {"file-index.in-manifest-threshold": "1 mb"}, {"file-index.in-manifest-threshold": "0 b"}
_LOOKUP = {"changelog-producer": "lookup"}
_VECTORS = {"deletion-vectors.enabled": "true"}
_KEYED = {"bucket": "1"}
TABLES: dict[str, dict[str, str]] = {
    "append_embedded": _EMBEDDED,
    "append_beside": _BESIDE,
    "evolution_embedded": _EMBEDDED | EVOLUTION,
    "evolution_beside": _BESIDE | EVOLUTION,
    "deduplicate_embedded": _EMBEDDED | _KEYED,
    "deduplicate_beside": _BESIDE | _KEYED,
    "partial_update_embedded": _EMBEDDED | _KEYED | _LOOKUP | {"merge-engine": "partial-update"},
    "vectors_embedded": _EMBEDDED | _KEYED | _VECTORS,
    "vectors_beside": _BESIDE | _KEYED | _VECTORS,
    "lookup_embedded": _EMBEDDED | _KEYED | _LOOKUP,
    "lookup_beside": _BESIDE | _KEYED | _LOOKUP,
    "input_beside": _BESIDE | _KEYED | {"changelog-producer": "input"},
}


def tables(directory: Path) -> dict[str, Any]:
    """The tables, unpacked into a directory: pypaimon's handles, by name."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(directory, filter="data")
    return {name: CatalogFactory.create({"warehouse": str(directory / name)}).get_table("d.t") for name in TABLES}


def write_all(directory: Path) -> None:
    """Write the tables with live Java, each into a warehouse of its own."""
    with LiveJava() as java:
        for name, options in TABLES.items():
            _write(java, name, directory / name, options)


def _write(java: LiveJava, name: str, warehouse: Path, options: dict[str, str]) -> None:
    keyed = "bucket" in options
    java.call(
        "create",
        warehouse=str(warehouse),
        fields=[list(each) for each in FIELDS],
        partition_keys=[],
        primary_keys=["k"] if keyed else [],
        options=_ALL | (_OF_TWO if name.startswith("evolution") else _INDEXES) | options,
    )
    source = random.Random(name)
    kinds = ["+I"] if not keyed or "merge-engine" in options else ["+I", "+I", "+I", "-D"]
    for commit in range(8):
        java.call("write", flushes=[[_row(source, commit, keyed, source.choice(kinds)) for _ in range(6)]])
        if keyed and commit in ((2, 5, 7) if "vectors" in name else (2, 5)):
            java.call("compact", full=commit == 2, options={"write-only": "false"})
    if name.startswith("evolution"):
        rows = [["+I", source.randrange(100), f"new {source.randrange(4)}"] for _ in range(6)]
        java.call("evolve", columns=["n", "s"], rows=rows, range=3)
    if name == "append_beside":
        # What was written before goes by the names of then.
        changes = [["rename", "n", "m"], ["type", "m", "BIGINT"], ["drop", "f"], ["add", "f", "INT"]]
        java.call("alter", changes=[*changes, ["set", "file-index.bitmap.columns", "m,s"]])
        java.call("write", flushes=[[["+I", 1, 2, "after", 4, "5.00", None, 7]]])


def _row(source: random.Random, commit: int, keyed: bool, kind: str) -> list[Any]:
    """Values that lie apart from commit to commit, and meet again now and then."""
    near = commit if source.random() < 0.9 else source.randrange(8)
    number = 10 * near + source.randrange(4)
    key = source.randrange(12) + 3 * commit if keyed else number
    moment = f"2024-0{near + 1}-02T03:04:0{number % 4}.00{number % 4}"
    values: list[Any] = [number, f"s{number}", number * 10**15, f"{number - 30}.25", moment, number / 4 - 5]
    return [kind, key, *(None if source.random() < 0.1 else value for value in values)]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        write_all(Path(scratch))
        with tarfile.open(sys.argv[1] if len(sys.argv) > 1 else ARCHIVE, "w:xz") as archive:
            for name in TABLES:
                archive.add(Path(scratch) / name, name)
