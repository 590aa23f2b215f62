"""Rows for all sides: as Arrow for Python, as files of one column each for Java; and their checksum."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

KINDS = ("+I", "-U", "+U", "-D")
KIND = "_row_kind"
_TYPES = {
    "int32": ("INT", pa.int32()),
    "int64": ("BIGINT", pa.int64()),
    "float64": ("DOUBLE", pa.float64()),
    "datetime64[D]": ("DATE", pa.date32()),
    "datetime64[ms]": ("TIMESTAMP(3)", pa.timestamp("ms")),
}
_HEXADECIMAL = np.frombuffer(b"0123456789abcdef", np.uint8)


@dataclass(frozen=True)
class Rows:
    """Rows in memory.

    Attributes:
        columns: Values by name; texts, all of one length, are a matrix of bytes.
        kinds: Numbers of `KINDS`; None: all are inserts.
    """

    columns: dict[str, np.ndarray[Any, Any]]
    kinds: np.ndarray[Any, Any] | None = None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def layout(self) -> list[tuple[str, str, int]]:
        """Name, Paimon's type and width in bytes of each column, and of the kinds, if there are any."""
        kinds = [] if self.kinds is None else [("_kind", "TINYINT", 1)]
        return [(name, _paimon_type(values), _width(values)) for name, values in self.columns.items()] + kinds

    def arrow(self) -> pa.Table:
        """For writers of Python, kinds in the column `_row_kind`."""
        columns = {name: _arrow(values) for name, values in self.columns.items()}
        if self.kinds is not None:
            columns[KIND] = pa.DictionaryArray.from_arrays(self.kinds, list(KINDS)).cast(pa.string())
        return pa.table(columns)

    def save(self, directory: Path) -> Path:
        """For Java's `Input`."""
        directory.mkdir(parents=True)
        for name, values in self.columns.items():
            days = values.astype(np.int32) if values.dtype == "datetime64[D]" else values
            np.ascontiguousarray(days).tofile(directory / name)
        if self.kinds is not None:
            self.kinds.tofile(directory / "_kind")
        return directory


def _is_text(values: np.ndarray[Any, Any]) -> bool:
    return values.ndim == 2


def _paimon_type(values: np.ndarray[Any, Any]) -> str:
    return "STRING" if _is_text(values) else _TYPES[str(values.dtype)][0]


def _width(values: np.ndarray[Any, Any]) -> int:
    if _is_text(values):
        return values.shape[1]
    return 4 if values.dtype == "datetime64[D]" else values.dtype.itemsize


def _arrow(values: np.ndarray[Any, Any]) -> pa.Array:
    if _is_text(values):
        count, width = values.shape
        offsets = np.arange(count + 1, dtype=np.int32) * width
        buffers = [pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
        return pa.StringArray.from_buffers(count, *buffers)
    return pa.array(values, _TYPES[str(values.dtype)][1])


def hexadecimal(rng: np.random.Generator, count: int, width: int) -> np.ndarray[Any, Any]:
    """Random texts of hexadecimal digits."""
    return _HEXADECIMAL[rng.integers(0, 16, (count, width), dtype=np.uint8)]


def _names(rng: np.random.Generator, count: int) -> np.ndarray[Any, Any]:
    pool = np.array([f"name-{number:04d}".encode() for number in range(10_000)]).view(np.uint8).reshape(-1, 9)
    return pool[rng.integers(0, len(pool), count)]


def five_columns(ids: np.ndarray[Any, Any], seed: int, kinds: np.ndarray[Any, Any] | None = None) -> Rows:
    """Rows of 33 bytes with these ids."""
    rng, count = np.random.default_rng(seed), len(ids)
    columns: dict[str, np.ndarray[Any, Any]] = {
        "id": ids.astype(np.int64),
        "amount": rng.random(count),
        "number": rng.integers(0, 1 << 30, count, dtype=np.int32),
        "name": _names(rng, count),
        "day": rng.integers(10_000, 20_000, count).astype("datetime64[D]"),
    }
    return Rows(columns, kinds)


def changes(commits: int, each: int, seed: int = 0) -> Rows:
    """Inserts, then in each further commit to 40 % pairs of `-U` and `+U`, 10 % deletes and 10 % inserts."""
    rng = np.random.default_rng(seed)
    ids, kinds = [np.arange(each)], [np.zeros(each, np.int8)]
    tenth = each // 10
    for commit in range(1, commits):
        chosen = rng.choice(each, 5 * tenth, replace=False)
        ids.append(np.concatenate([np.repeat(chosen[: 4 * tenth], 2), chosen[4 * tenth :], _new(commit, each, tenth)]))
        kinds.append(np.array([1, 2] * (4 * tenth) + [3] * tenth + [0] * (each - 9 * tenth), np.int8))
    return five_columns(np.concatenate(ids), seed, np.concatenate(kinds))


def _new(commit: int, each: int, tenth: int) -> np.ndarray[Any, Any]:
    return np.arange(each - 9 * tenth) + commit * each


def twenty_texts(count: int, seed: int = 0) -> Rows:
    """One INT key and 20 texts, as in Paimon's benchmarks of its writers."""
    rng = np.random.default_rng(seed)
    columns = {"k": rng.integers(0, 1 << 31, count, dtype=np.int32)}
    return Rows(columns | {f"f{number}": hexadecimal(rng, count, 10) for number in range(1, 21)})


def of_150_bytes(count: int, keys: int, seed: int = 0) -> Rows:
    """Rows of 150 bytes for random ones of many keys, as in Paimon's benchmark of upserts."""
    rng = np.random.default_rng(seed)
    columns = {"k": rng.integers(0, keys, count, dtype=np.int64)}
    widths = {"a": 40, "b": 40, "c": 40}
    numbers = {name: rng.integers(0, 1 << 36, count, dtype=np.int64) for name in ("uv", "pv")}
    return Rows(columns | numbers | {name: hexadecimal(rng, count, width) for name, width in widths.items()})


def bids(count: int, seed: int = 0) -> Rows:
    """Bids of Nexmark."""
    rng = np.random.default_rng(seed)
    numbers = {name: rng.integers(0, 1 << 20, count, dtype=np.int64) for name in ("auction", "bidder", "price")}
    texts = {"channel": _names(rng, count), "url": hexadecimal(rng, count, 40)}
    moment = {"date_time": (np.arange(count) + 1_700_000_000_000).astype("datetime64[ms]")}
    return Rows(numbers | texts | moment | {"extra": hexadecimal(rng, count, 60)})


def numbered(commit: int, count: int = 1_000) -> Rows:
    """Rows that carry the number of their commit."""
    found = five_columns(np.arange(count) + commit * count, seed=commit)
    return Rows({"commit": np.full(count, commit, np.int64), **found.columns})


class Checksum:
    """Of rows in any order, with their kinds: the sum that `Tally.java` makes.

    A value is itself if it is a number, 2^20 times itself without its fraction if it is a floating point number, and
    its CRC-32 if it is a text; a row is the sum of its values, times one more than the number of its kind.
    """

    def __init__(self) -> None:
        self.rows = self.value = 0

    def add(self, batch: pa.RecordBatch | pa.Table, kinds: str = KIND) -> None:
        """Add the rows of a batch, whose kinds are in a column of this name, if it has one."""
        sums = np.zeros(batch.num_rows, np.int64)
        for name in batch.schema.names:
            if name != kinds:
                sums += _numbers(batch.column(name))
        if kinds in batch.schema.names:
            sums *= 1 + _kind_numbers(batch.column(kinds))
        self.rows += batch.num_rows
        self.value += int(sums.sum())


def _kind_numbers(column: Any) -> np.ndarray[Any, Any]:
    if pa.types.is_integer(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)
    return np.asarray(pc.index_in(column, pa.array(KINDS, column.type)).to_numpy(zero_copy_only=False), np.int64)


def _numbers(column: Any) -> np.ndarray[Any, Any]:
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts = column.dictionary_encode()
        sums = np.array([zlib.crc32(text.encode()) for text in texts.dictionary.to_pylist()], np.int64)
        return sums[texts.indices.to_numpy(zero_copy_only=False)]
    if pa.types.is_floating(kind):
        return (column.to_numpy(zero_copy_only=False) * (1 << 20)).astype(np.int64)
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("ms")).cast(pa.int64())
    elif pa.types.is_date(kind):
        column = column.cast(pa.int32())
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)
