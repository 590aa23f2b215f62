"""Data files, deletion vectors and manifests that are damaged or mean harm: a typed error, and the process lives on."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pytest

from support.crash.adversarial_reader import Samples, oddities
from support.samples import SOAK, some
from support.tables.handles import create_table

pytestmark = [pytest.mark.slow, pytest.mark.soak]

ROWS = 200
ORC_CODECS = ["zstd", "zlib", "snappy", "lz4", "uncompressed"]
TAIL = 500


def small() -> pa.Table:
    return pa.table({"k": pa.array(range(ROWS), pa.int64()), "v": pa.array([f"v{number}" for number in range(ROWS)])})


def rich() -> pa.Table:
    """Columns whose lengths, dictionaries and nulls lie in streams of their own; many values repeat."""
    rng = random.Random(7)
    numbers = range(ROWS)
    return pa.table(
        {
            "i": pa.array([rng.randrange(1000) for _ in numbers], pa.int32()),
            "l": pa.array([None if number % 7 == 0 else number * number for number in numbers], pa.int64()),
            "dictionary": [f"value-{number % 13}" for number in numbers],
            "direct": [f"u{rng.random()}" if number % 5 else None for number in numbers],
            "d": [number / 3 for number in numbers],
            "b": [number % 3 == 0 for number in numbers],
            "t": [datetime(2024, 1, 1 + number % 20) for number in numbers],
            "dec": pa.array([Decimal(number) / 100 for number in numbers], pa.decimal128(20, 2)),
            "list": [[number] * (number % 4) for number in numbers],
            "map": pa.array(
                [[(f"k{j}", j) for j in range(number % 3)] for number in numbers], pa.map_(pa.string(), pa.int64())
            ),
            "struct": [{"a": number, "b": f"x{number}"} for number in numbers],
            "binary": [bytes([number % 256]) * 5 for number in numbers],
        }
    )


def orc_file(rows: pa.Table, codec: str) -> bytes:
    out = io.BytesIO()
    orc.write_table(rows, out, compression=codec, dictionary_key_size_threshold=0.5)
    return out.getvalue()


def each_byte_changed(data: bytes, first: int, step: int) -> Iterator[bytes]:
    """Every one of the last bytes with several other values, each one by itself; of these every `step`-th."""
    count = 0
    for offset in range(max(0, len(data) - TAIL), len(data)):
        for value in {0, 1, 127, 128, 255, data[offset] ^ 1, data[offset] ^ 0x40} - {data[offset]}:
            count += 1
            if count % step == first:
                yield data[:offset] + bytes([value]) + data[offset + 1 :]


def mutated(data: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Copies with some bytes changed, or with a piece lost or doubled."""
    rng = random.Random(seed)
    for _ in range(count):
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            offset = rng.randrange(len(changed))
            flipped = changed[offset] ^ 1 << rng.randrange(8)
            changed[offset] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256), flipped))
        if rng.random() < 0.2:
            first, last = rng.randrange(len(changed)), rng.randrange(len(changed))
            changed = changed[:last] + changed[first:]
        yield bytes(changed)


def check(warehouse: Any, directory: Path, name: str, rows: pa.Table, contents: list[bytes]) -> None:
    table = create_table(warehouse, "t", rows.schema)
    root = str(Path(str(table.table_path)).parent.parent)
    assert oddities(Samples(root, name, rows.num_rows, contents), directory) == []


@pytest.mark.parametrize("name", ["a.orc", "manifest"])
def test_no_byte_of_the_tail_of_an_orc_file_ends_the_process(warehouse: Any, tmp_path: Path, name: str) -> None:
    whole = orc_file(small(), "zstd")
    offsets = block_headers(whole)
    contents = list(each_byte_changed(whole, 0, 1 if SOAK else 27))
    # The first bytes of the footer's block and of the stripe's, which a sample might miss.
    for offset in offsets:
        contents += [whole[:offset] + bytes([whole[offset] ^ 1]) + whole[offset + 1 :]]
    check(warehouse, tmp_path, name, small(), contents)


def block_headers(data: bytes) -> list[int]:
    """Where the blocks of the file's footer and of its last stripe's footer begin."""
    from pypaimon.streaming.formats.orc_checks import OrcChecks
    from pypaimon.streaming.formats.orc_tail import read_tail

    def read(start: int, end: int) -> bytes:
        return data[start:end]

    tail = read_tail(len(data), read)
    return [tail.body, OrcChecks(tail, read).stripes[-1].footer]


@pytest.mark.parametrize("codec", some("codecs of damaged files", ORC_CODECS, 1))
def test_a_sample_of_damage_in_an_orc_file_does_not_end_the_process(warehouse: Any, tmp_path: Path, codec: str) -> None:
    """A sample that does not: a few of all damages do, see `docs/guarantees.md`."""
    whole = orc_file(rich(), codec)
    check(warehouse, tmp_path, "a.orc", rich(), [whole, *each_byte_changed(whole, 0, 97), *mutated(whole, 20, 2)])
