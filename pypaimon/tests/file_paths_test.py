"""Paths of data files: Java's spelling of partitions, buckets, merged changelog files."""

from __future__ import annotations

import time as clock
from datetime import date, datetime, time, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pypaimon.table.row.generic_row import GenericRowSerializer

from pypaimon.streaming.internals import AtomicType, DataField, GenericRow
from pypaimon.streaming.metadata.file_paths import ByteRange, FilePaths, java_float_text, merged_changelog_range


def _directory(type_: str, value: Any, *, legacy: bool = True) -> str:
    fields = (DataField(0, "p", AtomicType(type_)),)
    row = GenericRowSerializer.to_bytes(GenericRow([value], list(fields)))
    path = FilePaths("/t", fields, legacy_names=legacy).bucket(row, 0)
    assert path.startswith("/t/p=") and path.endswith("/bucket-0")
    return path[len("/t/p=") : -len("/bucket-0")]


@pytest.mark.parametrize(
    ("type_", "value", "legacy", "cast"),
    [
        ("STRING", "a b", "a b", "a b"),
        ("BOOLEAN", True, "true", "true"),
        ("SMALLINT", -3, "-3", "-3"),
        ("BIGINT", 5000000000, "5000000000", "5000000000"),
        ("DATE", date(2024, 2, 29), "19782", "2024-02-29"),
        ("DATE", date(1969, 12, 31), "-1", "1969-12-31"),
        ("TIME(0)", time(1, 2, 3), "3723000", "01%3A02%3A03"),
        ("TIME(3)", time(1, 2, 3, 450000), "3723450", "01%3A02%3A03.45"),
        ("TIME(3)", time(1, 2), "3720000", "01%3A02%3A00.0"),
        ("TIMESTAMP(3)", datetime(2024, 2, 29, 12, 34), "2024-02-29T12%3A34", "2024-02-29 12%3A34%3A00.000"),
        ("TIMESTAMP(0)", datetime(2024, 2, 29, 12, 34, 5), "2024-02-29T12%3A34%3A05", "2024-02-29 12%3A34%3A05"),
        (
            "TIMESTAMP(6)",
            datetime(1, 2, 3, 4, 5, 0, 10),
            "0001-02-03T04%3A05%3A00.000010",
            "0001-02-03 04%3A05%3A00.000010",
        ),
        (
            "TIMESTAMP(6)",
            datetime(1969, 12, 31, 23, 59, 59, 500000),
            "1969-12-31T23%3A59%3A59.500",
            "1969-12-31 23%3A59%3A59.500000",
        ),
        ("DECIMAL(10, 2)", Decimal("-0.05"), "-0.05", "-0.05"),
        ("DECIMAL(38, 10)", Decimal("1e-10"), "0.0000000001", "0.0000000001"),
        ("DOUBLE", 1e7, "1.0E7", "1.0E7"),
        ("FLOAT", 0.10000000149011612, "0.1", "0.1"),
    ],
)
def test_values_as_java_spells_them(type_: str, value: Any, legacy: str, cast: str) -> None:
    assert _directory(type_, value) == legacy
    assert _directory(type_, value, legacy=False) == cast


@pytest.mark.parametrize("value", [None, "", " ", "\t\n"])
def test_null_and_blank_values(value: str | None) -> None:
    assert _directory("STRING", value) == "__DEFAULT_PARTITION__"


def test_special_characters() -> None:
    assert _directory("STRING", "\"#%'*/:=?\\{}[]^\x01\x7f") == "%22%23%25%27%2A%2F%3A%3D%3F%5C%7B%7D%5B%5D%5E%01%7F"
    assert _directory("STRING", "äö 中~+&$!@(),;<>|`") == "äö 中~+&$!@(),;<>|`"


def test_local_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = datetime(2024, 2, 29, 12, tzinfo=timezone.utc)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    clock.tzset()
    try:
        assert _directory("TIMESTAMP_LTZ(0)", moment) == "2024-02-29T12%3A00"
        assert _directory("TIMESTAMP_LTZ(0)", moment, legacy=False) == "2024-02-29 21%3A00%3A00"
    finally:
        monkeypatch.undo()
        clock.tzset()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (100.0, "100.0"),
        (-1.5, "-1.5"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9999999.0, "9999999.0"),
        (12345678.0, "1.2345678E7"),
        (1e300, "1.0E300"),
        (5e-324, "4.9E-324"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_doubles(value: float, text: str) -> None:
    assert java_float_text(value, single=False) == text


def test_floats() -> None:
    assert java_float_text(3.4028234663852886e38, single=True) == "3.4028235E38"
    assert java_float_text(1.401298464324817e-45, single=True) == "1.4E-45"
    assert java_float_text(16777216.0, single=True) == "1.6777216E7"


def test_directories() -> None:
    paths = FilePaths("/wh/d.db/t/", data_directory="data")
    assert paths.data_file(bytes(12), 3, "a.orc") == "/wh/d.db/t/data/bucket-3/a.orc"
    assert paths.data_file(bytes(12), -2, "a.orc") == "/wh/d.db/t/data/bucket-postpone/a.orc"
    assert paths.data_file(bytes(12), 0, "a.orc", "s3://other/b/a.orc") == "s3://other/b/a.orc"
    assert paths.index_file(bytes(12), 3, "index-1") == "/wh/d.db/t/index/index-1"
    beside = FilePaths("s3://wh/t", index_beside_data=True)
    assert beside.index_file(bytes(12), 3, "index-1") == "s3://wh/t/bucket-3/index-1"
    assert beside.index_file(bytes(12), 3, "index-1", "s3://other/index-1") == "s3://other/index-1"
    assert FilePaths("s3://wh/t", data_directory="/elsewhere").bucket(b"", 0) == "s3://wh/elsewhere/bucket-0"


def test_escaped_names_in_a_file_uri(tmp_path: Path) -> None:
    """A FileIO decodes `file:` URIs, so only the root may stay encoded, and only where nothing is escaped below it."""
    fields = (DataField(0, "p", AtomicType("STRING")),)
    paths = FilePaths((tmp_path / "my table").as_uri(), fields)
    plain, escaped = (GenericRowSerializer.to_bytes(GenericRow([text], list(fields))) for text in ("a", "a/b"))
    assert paths.bucket(plain, 0) == f"{(tmp_path / 'my table').as_uri()}/p=a/bucket-0"
    assert paths.bucket(escaped, 0) == str(tmp_path / "my table" / "p=a%2Fb" / "bucket-0")


def test_merged_changelog_files() -> None:
    real = "/t/p=1/bucket-0/compacted-changelog-4f$0-1054.cc-parquet"
    assert merged_changelog_range(real) == ByteRange(real, 0, 1054, "parquet")
    fake = "/t/p=1/bucket-7/compacted-changelog-4f$0-1054-1054-900.cc-parquet"
    assert merged_changelog_range(fake) == ByteRange(real, 1054, 900, "parquet")
    assert merged_changelog_range("/t/bucket-0/changelog-4f-0.parquet") is None
    assert merged_changelog_range("/t/bucket-0/data-4f$0-10.parquet") is None
