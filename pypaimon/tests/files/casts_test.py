"""Casts of values that lie at the end of what a type holds."""

from __future__ import annotations

from datetime import datetime, time
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming.files.casts import CastError, cast
from pypaimon.streaming.model.time_zone import time_zone
from pypaimon.streaming.paimon.internals import AtomicType


def cast_text(text: str, kind: str, exact: bool = False) -> Any:
    convert = cast(AtomicType("STRING"), AtomicType(kind), exact, time_zone("UTC"))
    return convert(pa.array([text]))[0].as_py()


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("year", [1, 1677, 2262, 9999])
def test_a_text_of_any_year_is_a_timestamp_of_it(year: int, exact: bool) -> None:
    assert cast_text(f" {year:04}-12-31 23:59:58.5", "TIMESTAMP(3)", exact) == datetime(
        year, 12, 31, 23, 59, 58, 500_000
    )


@pytest.mark.parametrize("text", ["9999-12-31 00:00:00", "9999-12-31 00:00:00.123456789", "0001-01-01 00:00:00"])
def test_a_text_beyond_nanoseconds_is_refused(text: str) -> None:
    with pytest.raises(CastError):
        cast_text(text, "TIMESTAMP(9)")


@pytest.mark.parametrize("text", ["1E-999999999", "0E-999999999", "1e999999999"])
def test_a_text_with_a_large_exponent_is_not_a_decimal(text: str) -> None:
    with pytest.raises(CastError):
        cast_text(text, "DECIMAL(10, 2)")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12:30:01", time(12, 30, 1)),
        (" 7 : 05 ", time(7, 5)),
        (" 23 ", time(23)),
        ("00:00:01.5", time(0, 0, 1, 500_000)),
        ("00:00:01.1235", time(0, 0, 1, 124_000)),
        ("10:00:00-01:30", time(8, 30)),
        ("10:00+2", time(12)),
        ("1001", time(0, 0, 1, 1000)),
    ],
)
def test_a_text_is_the_time_that_java_makes_of_it(text: str, expected: time) -> None:
    assert cast_text(text, "TIME(3)") == expected


@pytest.mark.parametrize("text", ["", "noon", "24:00:00", "23:59:59.9996", "-1:00", "86400000", "2020-01-01 00:00:00"])
def test_a_text_that_is_not_a_time_of_a_day_is_refused(text: str) -> None:
    with pytest.raises(CastError):
        cast_text(text, "TIME(3)")


def test_digits_that_a_time_would_lose_are_refused_where_the_cast_is_exact() -> None:
    assert cast_text("00:00:01.1230", "TIME(3)", exact=True) == time(0, 0, 1, 123_000)
    with pytest.raises(CastError, match="lose digits"):
        cast_text("00:00:01.1234", "TIME(3)", exact=True)
