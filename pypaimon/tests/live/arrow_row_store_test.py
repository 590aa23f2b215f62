"""Rows in memory hold what a dict holds, whatever their keys are, and whoever reads sees one state of them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pypaimon.streaming import StreamConfigError
from pypaimon.streaming.live.arrow_row_store import VersionedRows
from pypaimon.streaming.live.hash_index import comparable, hash_of_one, hashes_of
from pypaimon.streaming.live.row_store import TableVersion
from support.samples import SOAK, seeded

pytestmark = [pytest.mark.slow, pytest.mark.soak]

Draw = Callable[[Random], Any]
VALUES = [pa.field("number", pa.int64()), pa.field("text", pa.string()), pa.field("list", pa.list_(pa.int32()))]
ALPHABET = "ab\0ä€😀"


def text_of(random: Random) -> str:
    """Short and long ones; of some the begins are alike."""
    begin = random.choice(["", "same begin ", "x" * 250])
    return begin + "".join(random.choices(ALPHABET, k=random.choice([0, 1, 2, 7, 8, 9, 16])))


KEYS: dict[str, list[tuple[pa.DataType, Draw]]] = {
    "tinyint": [(pa.int8(), lambda random: random.randint(-128, 127))],
    "int": [(pa.int32(), lambda random: random.choice([0, 1, -1, 2**31 - 1, -(2**31), random.randint(-99, 99)]))],
    "bigint": [(pa.int64(), lambda random: random.choice([-(2**63), 2**63 - 1, random.randint(0, 99) << 32]))],
    "text": [(pa.string(), text_of)],
    "bytes": [(pa.binary(), lambda random: text_of(random).encode())],
    "decimal": [(pa.decimal128(20, 2), lambda random: Decimal(random.choice([1, -1, 10**16]) * random.randint(0, 50)))],
    "date": [(pa.date32(), lambda random: date(1970, 1, 1) + timedelta(days=random.randint(-50, 50)))],
    "timestamp": [
        (
            pa.timestamp("us"),
            lambda random: datetime(1969, 12, 31, 23, 59, 50) + timedelta(microseconds=random.randint(0, 2 * 10**7)),
        )
    ],
    "local timestamp": [
        (
            pa.timestamp("ms", "UTC"),
            lambda random: datetime(2024, 1, 1, tzinfo=timezone.utc) + timedelta(hours=random.randint(0, 60)),
        )
    ],
    "double": [
        (pa.float64(), lambda random: random.choice([0.0, -0.0, math.nan, math.inf, 1.5, random.randint(0, 50) / 3]))
    ],
    "boolean": [(pa.bool_(), lambda random: random.random() < 0.5)],
    "text and int": [(pa.string(), text_of), (pa.int32(), lambda random: random.randint(-3, 3))],
    "date, boolean and decimal": [
        (pa.date32(), lambda random: date(2024, 1, random.randint(1, 5))),
        (pa.bool_(), lambda random: random.random() < 0.5),
        (pa.decimal128(38, 10), lambda random: Decimal(random.randint(-5, 5)).scaleb(18)),
    ],
}


def schema_of(kinds: list[tuple[pa.DataType, Draw]]) -> pa.Schema:
    """Keys before and behind the values."""
    fields = [pa.field(f"k{number}", kind, nullable=False) for number, (kind, _) in enumerate(kinds)]
    return pa.schema([*fields[1:], *VALUES, fields[0]])


def held(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """A key as one of a dict: NaN is equal to itself, and 0.0 is not -0.0."""
    return tuple(str(value) if isinstance(value, float) else value for value in key)


@pytest.mark.parametrize("kind", KEYS)
def test_rows_are_those_of_a_dict_after_each_change(kind: str) -> None:
    random = seeded(kind)
    kinds = KEYS[kind]
    schema = schema_of(kinds)
    names = [f"k{number}" for number in range(len(kinds))]
    rows = VersionedRows(schema, names)
    expected: dict[Any, dict[str, Any]] = {}
    for step in range(15 if SOAK else 4):
        changes = []
        for _ in range(random.choice([0, 1, 3, 40, 100])):
            key = tuple(draw(random) for _, draw in kinds)
            number = random.choice([None, random.randint(-9, 9)])
            row = {**dict(zip(names, key, strict=True)), "number": number}
            row["text"], row["list"] = random.choice([None, "", "text"]), random.choice([None, [], [1, None]])
            changes.append((row, random.random() < 0.7))
        given = pa.Table.from_pylist([row for row, _ in changes], schema=schema)
        for row, (_, sets) in zip(given.to_pylist(), changes, strict=True):
            key = held(tuple(row[name] for name in names))
            expected.pop(key, None)
            if sets:
                expected[key] = row
        rows.apply(given, np.array([sets for _, sets in changes], np.bool_), TableVersion(step))
        assert rows.table_version == TableVersion(step)
        assert len(rows) == len(expected)
        found = rows.to_arrow()
        assert found.schema == schema
        assert {held(tuple(row[name] for name in names)): texts(row) for row in found.to_pylist()} == {
            key: texts(row) for key, row in expected.items()
        }
        assert found.num_rows == len(expected)
        asked = [tuple(row[name] for name in names) for row in expected.values()]
        asked += [tuple(draw(random) for _, draw in kinds) for _ in range(20)]
        wanted = [texts(expected.get(held(key))) for key in asked]
        assert [texts(rows.get(key if len(key) > 1 else key[0])) for key in asked] == wanted
        assert [texts(rows.get(dict(zip(names, key, strict=True)))) for key in asked] == wanted
        arrays = [pa.array(column, kind) for column, (kind, _) in zip(zip(*asked, strict=True), kinds, strict=True)]
        table = pa.table(arrays, names)
        nothing = texts(dict.fromkeys(schema.names))
        assert [texts(row) for row in rows.get_many(table).to_pylist()] == [each or nothing for each in wanted]
        if len(kinds) == 1:
            found = rows.get_many(pa.chunked_array([arrays[0][:3], arrays[0][3:]]))
            assert [texts(row) for row in found.to_pylist()] == [each or nothing for each in wanted]
    assert rows.get_many(table.slice(0, 0)).num_rows == 0


def texts(row: dict[str, Any] | None) -> dict[str, str] | None:
    """Values that are equal where they are the same: NaN too."""
    return None if row is None else {name: repr(row[name]) for name in sorted(row)}


@pytest.mark.parametrize("kind", ["int", "bigint", "text", "text and int"])
def test_one_key_has_the_hash_that_it_has_in_a_column(kind: str) -> None:
    random = seeded(kind)
    kinds = KEYS[kind]
    keys = [tuple(draw(random) for _, draw in kinds) for _ in range(300)]
    columns = [pa.array(column, kind) for column, (kind, _) in zip(zip(*keys, strict=True), kinds, strict=True)]
    for begin in (0, 3):
        hashes = hashes_of([comparable(column.slice(begin)) for column in columns]).tolist()
        plain = [[value.encode() if isinstance(value, str) else value for value in key] for key in keys[begin:]]
        assert hashes == [hash_of_one(key) for key in plain]


def colliding() -> list[tuple[int, int]]:
    """Pairs of keys that have one hash."""
    hashes = hashes_of([pa.array(np.arange(300_000))])
    order = np.argsort(hashes)
    equal = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
    return [(int(order[at]), int(order[at + 1])) for at in equal]


def test_keys_of_one_hash_are_distinguished() -> None:
    pairs = colliding()
    assert len(pairs) > 3
    schema = pa.schema([("id", pa.int64()), ("value", pa.int64())])
    rows = VersionedRows(schema, ["id"])
    keys = [key for pair in pairs for key in pair]
    ones = np.ones(len(keys), np.bool_)
    rows.apply(pa.table([keys, keys], schema=schema), ones, TableVersion())
    assert rows.get_many(keys)["value"].to_pylist() == keys == [rows.get(key)["value"] for key in keys]
    # Of two keys that have one hash one comes twice, and the other between.
    first, second = pairs[0]
    changes = pa.table([[first, second, first], [1, 2, 3]], schema=schema)
    rows.apply(changes, np.array([True, True, True]), TableVersion())
    assert rows.get_many([first, second])["value"].to_pylist() == [3, 2]
    rows.apply(changes, np.array([True, False, False]), TableVersion())
    assert rows.get_many([first, second])["value"].to_pylist() == [None, None]
    assert rows.get(first) is None and rows.get(pairs[1][0]) is not None
    only_second = VersionedRows(schema, ["id"])
    only_second.apply(pa.table([[second], [2]], schema=schema), np.array([True]), TableVersion())
    assert only_second.get(first) is None and only_second.get_many([first, second])["value"].to_pylist() == [None, 2]


def key_of(mixed: int) -> int:
    """The integer that is mixed to a number: every step of the mixing can be undone."""
    value = mixed ^ (mixed >> 33)
    for factor in (0xC4CEB9FE1A85EC53, 0xFF51AFD7ED558CCD):
        value = value * pow(factor, -1, 1 << 64) % (1 << 64)
        value ^= value >> 33
    return value - (1 << 64 if value >> 63 else 0)


def test_keys_whose_hash_would_be_that_of_a_free_slot_are_found() -> None:
    keys = [key_of(mixed) for mixed in (0, 1, 2, 1 << 31, (1 << 32) - 1)]
    assert [hash_of_one([key]) for key in keys] == hashes_of([pa.array(keys)]).tolist() == [1] * len(keys)
    schema = pa.schema([("id", pa.int64()), ("value", pa.int64())])
    rows = VersionedRows(schema, ["id"])
    for number, key in enumerate(keys):
        rows.apply(pa.table([[key], [number]], schema=schema), np.ones(1, np.bool_), TableVersion(number))
        assert len(rows) == number + 1
    assert rows.get_many(keys)["value"].to_pylist() == [0, 1, 2, 3, 4] == [rows.get(key)["value"] for key in keys]


def histories(random: Random, keys: int) -> Iterator[tuple[pa.Table, Any]]:
    """Changes of many rows: some new, some of rows that are there, some deletes."""
    schema = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("name", pa.string()), ("more", pa.binary(24))])
    for step in range(60 if SOAK else 30):
        count = random.choice([10, 500, 3000])
        rng = np.random.default_rng(random.randrange(2**32))
        ids = rng.integers(0, keys, count)
        names = pa.array([f"name {number}" for number in rng.integers(0, 10**6, count)])
        more = pa.array([bytes([step]) * 24] * count, pa.binary(24))
        yield pa.table([ids, np.full(count, step), names, more], schema=schema), rng.random(count) < 0.8


@pytest.mark.parametrize("keys", [2_000, 10**6])
def test_many_rows_are_merged_and_let_go(keys: int) -> None:
    rows: VersionedRows | None = None
    expected: dict[int, dict[str, Any]] = {}
    random = seeded(f"{keys} keys")
    for table, sets in histories(random, keys):
        rows = rows or VersionedRows(table.schema, ["id"])
        rows.apply(table, sets, TableVersion())
        for row, is_set in zip(table.to_pylist(), sets, strict=True):
            expected.pop(row["id"], None)
            if is_set:
                expected[row["id"]] = row
    assert rows is not None
    found = rows.to_arrow()
    assert {row["id"]: row for row in found.to_pylist()} == expected and found.num_rows == len(rows) == len(expected)
    asked = [random.randrange(keys) for _ in range(5_000)]
    wanted = [expected.get(key) for key in asked]
    assert [rows.get(key) for key in asked] == wanted
    none = dict.fromkeys(found.schema.names)
    assert rows.get_many(asked).to_pylist() == [row or none for row in wanted]


NARROW = pa.schema([(name, pa.int64()) for name in ("id", "a", "b", "c")] + [("d", pa.int32()), ("e", pa.int8())])
"""37 bytes in a row."""


@pytest.mark.parametrize("seed", range(4 if SOAK else 1))
def test_memory_is_bounded_by_that_of_the_rows(seed: int) -> None:
    random = seeded(f"memory {seed}")
    rows = VersionedRows(NARROW, ["id"])
    live: list[int] = []
    begun = 0
    for step in range(60 if SOAK else 30):
        count = random.randint(100, 2_000) if step else random.randint(18_000, 50_000)
        random.shuffle(live)
        kind = random.choice(["inserts", "updates", "deletes", "both"]) if step else "inserts"
        gone = live[: min(count, len(live) // 20)] if kind in ("deletes", "both") else []
        new = range(begun, begun + count) if kind in ("inserts", "both") else []
        ids = np.array([*gone, *new, *(live[-count:] if kind == "updates" else [])], np.int64)
        columns = [pa.array(ids).cast(field.type, safe=False) for field in NARROW]
        rows.apply(pa.table(columns, schema=NARROW), np.arange(len(ids)) >= len(gone), TableVersion())
        live, begun = [*live[len(gone) :], *new], begun + len(new)
        assert len(rows) == len(live)
        if len(live) < 1 << 14:
            break
        assert rows.nbytes <= 1.5 * 37 * len(live), step


def test_rows_that_were_not_published_are_not_seen() -> None:
    schema = pa.schema([("id", pa.int64()), ("value", pa.int64())])
    rows = VersionedRows(schema, ["id"])
    rows.apply(pa.table([[1, 2, 3], [1, 2, 3]], schema=schema), np.ones(3, np.bool_), TableVersion(1))
    rows.apply(pa.table([[1, 2, 4], [0, 0, 0]], schema=schema), np.array([True, False, True]), None)
    rows.apply(pa.table([[5], [0]], schema=schema), np.array([True]), None)
    for _ in range(2):
        assert rows.get_many([1, 2, 3, 4, 5])["value"].to_pylist() == [1, 2, 3, None, None]
        assert (
            len(rows) == 3
            and rows.table_version == TableVersion(1)
            and sorted(rows.to_arrow()["id"].to_pylist()) == [1, 2, 3]
        )
    rows.publish(TableVersion(2))
    assert rows.get_many([1, 2, 3, 4, 5])["value"].to_pylist() == [0, None, 3, 0, 0]
    assert len(rows) == 4 and rows.table_version == TableVersion(2)


def test_a_part_of_a_larger_table_does_not_keep_the_rest_in_memory() -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    whole = pa.table([np.arange(100_000), ["a text that is long"] * 100_000], schema=schema)
    rows = VersionedRows(schema, ["id"])
    before = pa.total_allocated_bytes()
    for begin in range(0, 100_000, 10_000):
        rows.apply(whole.slice(begin, 1), np.ones(1, np.bool_), TableVersion())
    size = whole.nbytes
    del whole
    assert pa.total_allocated_bytes() < before - size // 2
    assert rows.get(90_000) == {"id": 90_000, "text": "a text that is long"}


def test_bytes_are_those_that_are_kept_in_memory() -> None:
    schema = pa.schema([("id", pa.int64()), ("value", pa.int64())])
    before = pa.total_allocated_bytes()
    whole = pa.table([pa.array(range(100_000)), pa.array(range(100_000))], schema=schema)
    rows = VersionedRows(schema, ["id"])
    rows.apply(whole.slice(0, 95_000), np.ones(95_000, np.bool_), TableVersion())
    del whole
    assert pa.total_allocated_bytes() - before <= 1.02 * rows.to_arrow().nbytes


def test_a_reader_meanwhile_sees_one_state() -> None:
    count, steps = 5_000, 60
    schema = pa.schema([("id", pa.int64()), ("step", pa.int64())])
    rows = VersionedRows(schema, ["id"])
    ids = np.arange(count)
    ended = threading.Event()
    seen: list[list[int]] = []
    wrong: list[str] = []
    began = threading.Barrier(4)

    def state(step: int) -> pa.Table:
        """All keys are there, or the even ones only."""
        return pa.table([ids, np.full(count, step)], schema=schema)

    rows.apply(state(0), np.ones(count, np.bool_), TableVersion(0))

    def read(ask: Callable[[], pa.Table], is_whole: Callable[[int, int], bool]) -> None:
        mine: list[int] = []
        began.wait()
        while not ended.is_set() or not mine:
            steps_found = [value for value in ask()["step"].to_pylist() if value is not None]
            if len({*steps_found}) != 1 or not is_whole(steps_found[0], len(steps_found)):
                wrong.append(f"{len(steps_found)} rows of {sorted({*steps_found})}")
                break
            mine.append(steps_found[0])
        seen.append(mine)

    def expected(step: int, found: int) -> bool:
        return found == (count // 2 if step % 3 == 2 else count)

    asked = pa.array(ids)
    threads = [
        threading.Thread(target=read, args=(lambda: rows.get_many(asked), expected)),
        threading.Thread(target=read, args=(rows.to_arrow, expected)),
        threading.Thread(target=read, args=(lambda: pa.table({"step": [rows.get(7 * 2)["step"]]}), lambda *_: True)),
    ]
    for thread in threads:
        thread.start()
    began.wait()
    for step in range(1, steps):
        rows.apply(state(step), ids % 2 == 0 if step % 3 == 2 else np.ones(count, np.bool_), TableVersion(step))
    ended.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert all(mine == sorted(mine) for mine in seen) and len(seen) == 3


@pytest.mark.parametrize(
    ("keys", "given", "words"),
    [
        (["a"], "text", r"the key of the table is \(a int64\)"),
        (["a"], {"b": 1}, "a dict"),
        (["a"], 1.5, "a int64"),
        (["a", "b"], 1, r"\(a int64, b string\), and not 1: give a tuple or a dict"),
        (["a", "b"], (1, 2), "b string"),
        (["b"], 1, "b string"),
        (["b"], b"x", "b string"),
        (["c"], datetime(2024, 1, 1, 5), "c date32"),
    ],
)
def test_an_invalid_key_is_refused(keys: list[str], given: Any, words: str) -> None:
    rows = VersionedRows(pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.date32())]), keys)
    with pytest.raises(StreamConfigError, match=words):
        rows.get(given)


@pytest.mark.parametrize(
    ("keys", "given"),
    [
        (["a"], pa.array(["x"])),
        (["a"], pa.table({"b": [1]})),
        (["a", "b"], pa.array([1])),
        (["a"], 7),
        (["a"], pa.array([2**63], pa.uint64())),
        (["a"], [1.5]),
        (["b"], [1]),
        (["c"], [datetime(2024, 1, 1, 5)]),
    ],
)
def test_invalid_keys_are_refused(keys: list[str], given: Any) -> None:
    rows = VersionedRows(pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.date32())]), keys)
    with pytest.raises(StreamConfigError, match="the key of the table is"):
        rows.get_many(given)


def test_keys_are_taken_in_types_that_hold_them() -> None:
    schema = pa.schema([("a", pa.int32()), ("b", pa.string())])
    rows = VersionedRows(schema, ["a"])
    rows.apply(pa.table([[1, -2], ["x", "y"]], schema=schema), np.ones(2, np.bool_), TableVersion())
    for given in (pa.array([1, 2**30, None, -2]), [1, 3, None, -2], pa.table({"c": [0] * 4, "a": [1, 7, None, -2]})):
        assert rows.get_many(given)["b"].to_pylist() == ["x", None, None, "y"]
    assert rows.get(2**30 + 1) is None
    by_text = VersionedRows(schema, ["b"])
    by_text.apply(pa.table([[1, -2], ["x", "y"]], schema=schema), np.ones(2, np.bool_), TableVersion())
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())):
        assert by_text.get_many(pa.array(["y", "z", None, "x"], kind))["a"].to_pylist() == [-2, None, None, 1]
