"""Rows of random histories: a value of any type from a seeded source, few enough that keys meet again."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

INTEGERS = [0, 1, 2, 3, 7, -5, 100]
LIMITS = {"TINYINT": 2**7, "SMALLINT": 2**15, "INT": 2**31, "BIGINT": 2**63}
TEXTS = ["a", "b", "ab", "B", "", "ü", "a b", "zz"]
LONG_TEXT = "somewhat longer than what a pointer holds"
DATES = ["1970-01-01", "2024-02-29", "2024-03-01", "1969-12-31", "2262-04-12"]
TIMES = ["00:00:00.000", "12:34:56.789", "23:59:59.999"]
# Some are near to 1970, and one is passed twice by clocks of New York.
SECONDS = [
    *("1970-01-01T00:00:00", "2024-02-29T12:34:56", "2024-03-01T00:00:00", "1969-12-30T23:59:59"),
    *("2024-07-01T12:00:00", "2024-11-03T01:30:00"),
]
FRACTIONS = ["000000000", "123456789", "500000000", "999999000"]
FLOATS = [0.0, 1.5, -2.25, 1024.0]
# Not -0.0: beside 0.0, Java's ORC reader takes it for a repeated value.
ODD_FLOATS = [*FLOATS, "NaN", "Infinity", "-Infinity"]
BYTES = ["", "AA==", "/////w==", "YWJj"]
BLOBS = [*BYTES, "c29tZXdoYXQgbG9uZ2VyIHRoYW4gYSB0YXJnZXQgc2l6ZQ=="]
VARIANTS = [
    *('{"age":30,"city":"x"}', '{"age":"old","city":null}', '{"age":25,"more":[1,2]}', '{"age":1,"tags":["p","q"]}'),
    *('{"city":{"age":1}}', "{}", '[1,"a",null]', '"text"', "7", "true", "null"),
]


def value(kind: Any, source: random.Random, odd: bool) -> Any:
    """A value in the corpus' JSON form.

    Args:
        kind: The type as Paimon's schema files write it.
        odd: Also limits of the type, NaN and the like, that aggregates cannot hold.
    """
    text = kind if isinstance(kind, str) else str(kind["type"])
    if not text.endswith("NOT NULL") and source.random() < 0.12:
        return None
    if isinstance(kind, dict):
        return _nested(kind, source, odd)
    name = re.split(r"[( ]", text)[0]
    arguments = [int(number) for number in re.findall(r"\d+", text)]
    if name in LIMITS:
        at_limit = odd and source.random() < 0.1
        return source.choice([-LIMITS[name], LIMITS[name] - 1] if at_limit else INTEGERS)
    if name in ("FLOAT", "DOUBLE"):
        return source.choice(ODD_FLOATS if odd else FLOATS)
    if name == "DECIMAL":
        return _decimal(source, arguments[1])
    if name in ("STRING", "VARCHAR"):
        return source.choice(TEXTS) if name == "VARCHAR" else source.choice([*TEXTS, LONG_TEXT])
    if name == "TIMESTAMP":
        return _timestamp(source, arguments[0] if arguments else 6)
    pools: dict[str, Sequence[Any]] = {
        "BOOLEAN": [False, True],
        "DATE": DATES,
        "TIME": TIMES,
        "BYTES": BYTES,
        "BLOB": BLOBS,
        "VARIANT": VARIANTS,
    }
    return source.choice(pools[name])


def _decimal(source: random.Random, scale: int) -> str:
    whole = str(source.choice(INTEGERS))
    return f"{whole}.{source.choice(['00', '25', '50'])[:scale]}" if scale else whole


def _timestamp(source: random.Random, precision: int) -> str:
    fraction = source.choice(FRACTIONS)[:precision]
    return source.choice(SECONDS) + (f".{fraction}" if fraction else "")


def _nested(kind: dict[str, Any], source: random.Random, odd: bool) -> Any:
    name = kind["type"].split()[0]
    if name == "ROW":
        return {field["name"]: value(field["type"], source, odd) for field in kind["fields"]}
    if name == "VECTOR":
        return [source.choice(FLOATS) for _ in range(kind["length"])]
    if name == "ARRAY":
        # Of rows one at most: Java 1.4 takes the first array of a nested table as it is, 2.1 merges its rows too.
        count = 2 if isinstance(kind["element"], dict) else 3
        return [value(kind["element"], source, odd) for _ in range(source.randrange(count))]
    if name == "MULTISET":
        # Never a null: Arrow's maps have no null keys.
        element = f"{kind['element'].removesuffix(' NOT NULL')} NOT NULL"
        return [[value(element, source, False), source.randrange(1, 4)] for _ in range(source.randrange(2))]
    # One entry at most: maps have no order, and Java's Avro reader gives that of a hash.
    return [[key, value(kind["value"], source, odd)] for key in source.choices(["k", "l"], k=source.randrange(2))]
