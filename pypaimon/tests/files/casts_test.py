"""Casts of values that lie at the end of what a type holds."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming.files.casts import CastError, cast
from pypaimon.streaming.internals import AtomicType
from pypaimon.streaming.model.time_zone import time_zone


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
def test_a_text_of_a_far_exponent_is_no_decimal(text: str) -> None:
    with pytest.raises(CastError):
        cast_text(text, "DECIMAL(10, 2)")
