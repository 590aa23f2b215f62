"""Paths of data files: Java's spelling of partitions, buckets, merged changelog files."""

from __future__ import annotations

import pickle
import time as clock
from datetime import date, datetime, time, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.table.row.generic_row import GenericRowSerializer
from pypaimon.utils.file_store_path_factory import FileStorePathFactory

from pypaimon.streaming.metadata.file_paths import (
    ByteRange,
    FilePaths,
    SpelledPath,
    java_float_text,
    merged_changelog_range,
)
from pypaimon.streaming.paimon.internals import AtomicType, DataField, GenericRow


def _directory(type_: str, value: Any, *, legacy: bool = True) -> str:
    fields = (DataField(0, "p", AtomicType(type_)),)
    row = GenericRowSerializer.to_bytes(GenericRow([value], list(fields)))
    [path] = FilePaths("/t", fields, legacy_names=legacy).partitions(pa.array([row], pa.binary()))
    assert path.startswith("/t/p=")
    return path[len("/t/p=") :]


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


@pytest.mark.parametrize(
    ("type_", "value", "legacy", "cast"),
    [
        ("STRING", "\xa0", "\xa0", "\xa0"),
        ("STRING", "\x85\u2007\u202f", "\x85\u2007\u202f", "\x85\u2007\u202f"),
        ("STRING", "\u3000\u2028", "__DEFAULT_PARTITION__", "__DEFAULT_PARTITION__"),
        ("FLOAT", float("nan"), "NaN", "NaN"),
        ("DOUBLE", float("-inf"), "-Infinity", "-Infinity"),
        ("BYTES", b"ab", "b%27ab%27", "ab"),
        ("BYTES", b"", "b%27%27", "__DEFAULT_PARTITION__"),
        ("BYTES", b" ", "b%27 %27", "__DEFAULT_PARTITION__"),
        ("BINARY(3)", b"a/b", "b%27a%2Fb%27", "a%2Fb"),
        ("VARBINARY(9)", b"it's", "b%22it%27s%22", "it%27s"),
        ("BYTES", "ä".encode(), "b%27%5Cxc3%5Cxa4%27", "ä"),
        # As Java's decoder replaces what is no UTF-8: a surrogate by one character, not by three.
        ("BYTES", b"\xff\x00", "b%27%5Cxff%5Cx00%27", "\ufffd%00"),
        ("BYTES", b"\xed\xa0\x80a", "b%27%5Cxed%5Cxa0%5Cx80a%27", "\ufffda"),
        ("BYTES", b"\xed\xa0", "b%27%5Cxed%5Cxa0%27", "\ufffd"),
        ("BYTES", b"\xed\xbfa", "b%27%5Cxed%5Cxbfa%27", "\ufffda"),
        ("BYTES", b"\xe0\x80\x80", "b%27%5Cxe0%5Cx80%5Cx80%27", "\ufffd\ufffd\ufffd"),
    ],
)
def test_values_that_pypaimon_spells_otherwise(type_: str, value: Any, legacy: str, cast: str) -> None:
    """Java has no spelling of BINARY with legacy names: what an array's `toString` gives is another text each time."""
    assert _directory(type_, value) == legacy
    assert _directory(type_, value, legacy=False) == cast


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize(
    ("type_", "values"),
    [
        ("BOOLEAN", [True]),
        ("BIGINT", [-(2**62)]),
        ("STRING", ["a b", "a/b", "", " ", "\t", "\xa0", "\x85", "\u2007", "\u3000", "%41", "b'ab'", "NaN"]),
        ("DATE", [date(1, 1, 1), date(9999, 12, 31)]),
        ("TIME(3)", [time(1, 2, 3, 450000), time(0)]),
        ("TIMESTAMP(0)", [datetime(2024, 2, 29, 12, 34)]),
        ("TIMESTAMP(3)", [datetime(1969, 12, 31, 23, 59, 59, 500000), datetime(2024, 1, 1)]),
        ("TIMESTAMP(6)", [datetime(2024, 1, 1, 0, 0, 0, 100000), datetime(2024, 1, 1, 0, 0, 0, 1)]),
        ("TIMESTAMP_LTZ(3)", [datetime(2024, 1, 1, 5, 6, tzinfo=timezone.utc)]),
        ("DECIMAL(10, 2)", [Decimal("-0.05"), Decimal("100.00"), Decimal("0.00")]),
        ("DECIMAL(38, 10)", [Decimal("0.0000000001")]),
        ("FLOAT", [0.1, 1e10, -0.0, 3.4028234663852886e38, 2.0**-149, float("nan"), float("inf")]),
        ("DOUBLE", [0.1, 1e7, 1e-3, 5e-324, 2e23, float("nan"), float("-inf")]),
        ("BYTES", [b"ab", b"", b" ", b"it's", b"a/b", b"\xff\x00"]),
        ("BINARY(2)", [b"ab"]),
    ],
)
def test_of_the_two_spellings_one_is_that_of_pypaimon(type_: str, values: list[Any], legacy: bool) -> None:
    fields = [DataField(0, "p", AtomicType(type_))]
    paths = FilePaths("/t", tuple(fields), legacy_names=legacy)
    factory = FileStorePathFactory(
        "/t", ["p"], "__DEFAULT_PARTITION__", "parquet", "data-", "changelog-", legacy, False, "zstd",
        partition_types=[fields[0].type],
    )  # fmt: skip
    for value in [None, *values]:
        row = GenericRowSerializer.to_bytes(GenericRow([value], fields))
        (directory,) = paths.partitions(pa.array([row], pa.binary()))
        path = paths.data_file(directory, 0, "f")
        spellings = {str(path), path.other} if isinstance(path, SpelledPath) else {path}
        assert f"{factory.bucket_path((value,), 0, canonical_partition=True)}/f" in spellings
        assert pickle.loads(pickle.dumps(path)) == path
        assert getattr(pickle.loads(pickle.dumps(path)), "other", None) == getattr(path, "other", None)


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
    nowhere = pa.array([bytes(12)], pa.binary())
    paths = FilePaths("/wh/d.db/t/", data_directory="data")
    [home] = paths.partitions(nowhere)
    assert paths.data_file(home, 3, "a.orc") == "/wh/d.db/t/data/bucket-3/a.orc"
    assert paths.data_file(home, -2, "a.orc") == "/wh/d.db/t/data/bucket-postpone/a.orc"
    assert paths.data_file(home, 0, "a.orc", "s3://other/b/a.orc") == "s3://other/b/a.orc"
    assert paths.index_file(home, 3, "index-1") == "/wh/d.db/t/index/index-1"
    beside = FilePaths("s3://wh/t", index_in_bucket=True)
    [home] = beside.partitions(nowhere)
    assert beside.index_file(home, 3, "index-1") == "s3://wh/t/bucket-3/index-1"
    assert beside.index_file(home, 3, "index-1", "s3://other/index-1") == "s3://other/index-1"
    assert FilePaths("s3://wh/t", data_directory="/elsewhere").partitions(nowhere) == ["s3://wh/elsewhere"]


def test_escaped_names_in_a_file_uri(tmp_path: Path) -> None:
    """A FileIO decodes `file:` URIs, so only the root may stay encoded, and only where nothing is escaped below it."""
    fields = (DataField(0, "p", AtomicType("STRING")),)
    paths = FilePaths((tmp_path / "my table").as_uri(), fields)
    rows = [GenericRowSerializer.to_bytes(GenericRow([text], list(fields))) for text in ("a", "a/b", None, "a")]
    found = paths.partitions(pa.array(rows, pa.binary()))
    plain, escaped = f"{(tmp_path / 'my table').as_uri()}/p=a", str(tmp_path / "my table" / "p=a%2Fb")
    assert found == [plain, escaped, plain.replace("p=a", "p=__DEFAULT_PARTITION__"), plain]


def test_merged_changelog_files() -> None:
    real = "/t/p=1/bucket-0/compacted-changelog-4f$0-1054.cc-parquet"
    assert merged_changelog_range(real) == ByteRange(real, 0, 1054, "parquet")
    fake = "/t/p=1/bucket-7/compacted-changelog-4f$0-1054-1054-900.cc-parquet"
    assert merged_changelog_range(fake) == ByteRange(real, 1054, 900, "parquet")
    assert merged_changelog_range("/t/bucket-0/changelog-4f-0.parquet") is None
    assert merged_changelog_range("/t/bucket-0/data-4f$0-10.parquet") is None
