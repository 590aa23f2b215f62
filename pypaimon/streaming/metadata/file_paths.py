"""Paths of a table's data and index files: partition directories as Java spells them, buckets, external paths.

Java's rules: docs/java-semantics.md#files.
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Callable, Sequence
from ctypes import c_float
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.formats import binary_row
from pypaimon.streaming.model.position import POSTPONE_BUCKET
from pypaimon.streaming.model.time_zone import TimeZone, time_zone, zone_of
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.paimon.internals import DataField, TableSchema, local_path, resolve_path, to_file_io_path

_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{}\[\]^]")
_MERGED_CHANGELOG = re.compile(
    r"(?P<base>.+\$(?P<bucket>-?\d+)-(?P<first>\d+))(-(?P<offset>\d+)-(?P<length>\d+))?\.cc-(?P<format>\w+)"
)
_BUCKET_DIRECTORY = re.compile(r"bucket-[^/]+$")
# A `file:` URI is decoded once, so encoded separators and dots are refused too.
_NO_FILE_NAME = r"(?i)[/\\]|%2f|%5c|^(\.|%2e){0,2}$"
_NO_NAME = "{!r} is not a valid file name in the directory of the table"
_EPOCH = datetime(1970, 1, 1)
# White space in Python but not in Java.
_NO_JAVA_SPACE = "\x85\xa0\u2007\u202f"
_JAVA_UTF8 = "pypaimon.streaming.java"


class SpelledPath(str):
    """A path below a partition whose name pypaimon spells differently from Java."""

    __slots__ = ("other",)
    other: str

    def __new__(cls, path: str, other: str) -> SpelledPath:
        made = super().__new__(cls, path)
        made.other = other
        return made

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.other)


def check_file_names(names: pa.Array | pa.ChunkedArray) -> None:
    """Refuse file names that would lead outside of their directory. Raises ValueError if a name is empty, names a
    directory, or holds a separator.
    """
    wrong = names.filter(pc.match_substring_regex(names, _NO_FILE_NAME))
    if len(wrong):
        raise ValueError(_NO_NAME.format(wrong[0].as_py()))


def check_file_name(name: str) -> None:
    """As `check_file_names` for one name, which must also be encodable as UTF-8."""
    name.encode()  # UnicodeEncodeError is a ValueError
    if re.search(_NO_FILE_NAME, name):
        raise ValueError(_NO_NAME.format(name))


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A part of a merged changelog file: a complete file of `format` by itself."""

    path: str
    offset: int
    length: int
    format: str


def merged_changelog_name(unique: UUID, bucket: int, first: int, format_: str, part: tuple[int, int] | None) -> str:
    """The name of a part of a merged changelog file in a manifest; see `merged_changelog_range`.

    `bucket` is the one whose directory holds the file: that of the part at offset 0. `part` is offset and length of
    another part; None: the part at offset 0, whose name is that of the real file.
    """
    within = "" if part is None else f"-{part[0]}-{part[1]}"
    return f"compacted-changelog-{unique}${bucket}-{first}{within}.cc-{format_}"


def merged_changelog_range(path: str) -> ByteRange | None:
    """The real file and range of a changelog file that was merged with others (`cc-<format>`); None for other files.

    The recorded path may not exist: the real file may be in the directory of another bucket of the partition. The
    names: docs/java-semantics.md#files.
    """
    directory, _, name = path.rpartition("/")
    found = _MERGED_CHANGELOG.fullmatch(name)
    if not found:
        return None
    if found["offset"] is None:
        return ByteRange(path, 0, int(found["first"]), found["format"])
    home = _BUCKET_DIRECTORY.sub(lambda _: f"bucket-{found['bucket']}", directory)
    real = f"{home}/{found['base']}.cc-{found['format']}"
    return ByteRange(real, int(found["offset"]), int(found["length"]), found["format"])


@dataclass(frozen=True)
class FilePaths:
    """Paths of a table's files, as Java's `FileStorePathFactory` and `DataFilePathFactory` make them.

    pypaimon spells some values of partition columns differently: NaN and infinities, BINARY, and white space that is
    not blank in Java. Paths below such a partition are `SpelledPath`s. Java spells BINARY as a cast to STRING. With
    legacy names it uses the address of an object, which cannot be found again, so pypaimon's spelling is used then.
    """

    table_path: str
    partition_fields: tuple[DataField, ...] = ()
    # Name of the directory for null and blank values (`partition.default-name`)
    default_name: str = "__DEFAULT_PARTITION__"
    # `partition.legacy-name`: values as by Java's `toString()`. Otherwise as by a cast to STRING.
    legacy_names: bool = True
    # `data-file.path-directory`: directory of data files below the root, or an absolute path
    data_directory: str | None = None
    index_in_bucket: bool = False  # `index-file-in-data-file-dir`: bucket index files are in the bucket directory
    zone: TimeZone = field(default_factory=partial(time_zone, None))

    @classmethod
    def of(cls, table_path: str, schema: TableSchema) -> FilePaths:
        """The paths of the table with this schema; its partitioning and the options used here never change."""
        fields = {column.name: column for column in schema.fields}
        options = schema.options
        return cls(
            table_path,
            tuple(fields[name] for name in schema.partition_keys),
            option_keys.PARTITION_DEFAULT_NAME.of(options),
            option_keys.PARTITION_LEGACY_NAME.of(options),
            option_keys.DATA_FILE_PATH_DIRECTORY.of(options),
            option_keys.INDEX_FILE_IN_DATA_FILE_DIR.of(options),
            zone_of(schema.options),
        )

    @property
    def data_root(self) -> str:
        """The directory of the partitions, or of the buckets of a table without any."""
        return str(resolve_path(self.table_path, self.data_directory)).rstrip("/")

    def partitions(self, rows: pa.Array) -> list[str]:
        """The directory of each partition (serialised rows), such as `<table>/dt=19723/hh=7`; decoded in bulk. Raises
        ValueError if a partition cannot be decoded.
        """
        levels = [self._names(rows, index) for index in range(len(self.partition_fields))]
        root = self.data_root
        # A FileIO decodes file: URIs, but escapes in a directory name must stay, so use a plain path for them.
        plain = local_path(root) if root.startswith("file:") else root

        def directory(names: Sequence[str]) -> str:
            below = "/".join(names)
            return "/".join(filter(None, ((plain if "%" in below else root).rstrip("/"), below)))

        rows_of_names = zip(*levels, strict=True) if levels else [()] * len(rows)
        return [_spelled(directory, names) for names in rows_of_names]

    def values(self, row: bytes) -> dict[str, str]:
        """The values of a partition (a serialised row) by column, as Java's catalogs name them; see `partitions`."""
        rows = pa.array([row], pa.binary())
        found = {}
        for index, column in enumerate(self.partition_fields):
            (value,) = binary_row.decode_column(rows, index, column.type)
            text = self._text(value, str(column.type).upper()) if value.is_valid else ""
            found[column.name] = self.default_name if _is_blank_in_java(text) else text
        return found

    def data_file(self, partition: str, bucket: int, file_name: str, external_path: str | None = None) -> str:
        """Full path of a data or changelog file, as recorded; see `merged_changelog_range`. Bucket -2 is
        `bucket-postpone`.
        """
        if external_path:
            return str(to_file_io_path(external_path))
        below = f"bucket-{'postpone' if bucket == POSTPONE_BUCKET else bucket}/{file_name}"
        path = f"{partition}/{below}"
        return SpelledPath(path, f"{partition.other}/{below}") if isinstance(partition, SpelledPath) else path

    def index_file(self, partition: str, bucket: int, file_name: str, external_path: str | None = None) -> str:
        """Full path of the index file of a bucket, with the arguments of `data_file`."""
        if external_path or self.index_in_bucket:
            return self.data_file(partition, bucket, file_name, external_path)
        return f"{self.table_path.rstrip('/')}/index/{file_name}"

    def _names(self, rows: pa.Array, index: int) -> list[str]:
        column = self.partition_fields[index]
        kind = str(column.type).upper()
        values = binary_row.decode_column(rows, index, column.type)
        before = f"{_escape(column.name)}="
        return [self._name(before, value, kind) if value.is_valid else before + self._default for value in values]

    def _name(self, before: str, value: pa.Scalar, kind: str) -> str:
        text = self._text(value, kind)
        name = before + (self._default if _is_blank_in_java(text) else _escape(text))
        if not _is_spelled_otherwise(value):
            return name
        text = str(value.as_py())
        return SpelledPath(name, before + (self._default if text.isspace() else _escape(text)))

    def _text(self, value: pa.Scalar, kind: str) -> str:
        return _text(value, kind, self.legacy_names, self.zone)

    @property
    def _default(self) -> str:
        return _escape(self.default_name)


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _spelled(directory: Callable[[Sequence[str]], str], names: Sequence[str]) -> str:
    path = directory(names)
    if not any(isinstance(name, SpelledPath) for name in names):
        return path
    return SpelledPath(path, directory([name.other if isinstance(name, SpelledPath) else name for name in names]))


def _is_blank_in_java(text: str) -> bool:
    return not text or (text.isspace() and not any(each in _NO_JAVA_SPACE for each in text))


def _is_spelled_otherwise(scalar: pa.Scalar) -> bool:
    value: Any = scalar.as_py()
    if isinstance(value, str):
        return value.isspace()
    return isinstance(value, bytes) or (isinstance(value, float) and not math.isfinite(value))


def _text(scalar: pa.Scalar, type_text: str, legacy: bool, zone: TimeZone) -> str:
    if pa.types.is_timestamp(scalar.type):
        return _timestamp_text(scalar, type_text, legacy, zone)
    value: Any = scalar.as_py()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return java_float_text(value, single=pa.types.is_float32(scalar.type))
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, date):
        return str((value - _EPOCH.date()).days) if legacy else value.isoformat()
    if isinstance(value, time):
        return str(scalar.value) if legacy else _time_text(value, _precision(type_text, 0))
    if isinstance(value, bytes):
        return str(value) if legacy else value.decode("utf-8", _JAVA_UTF8)
    return str(value)


def _replaced_by_java(error: UnicodeError) -> tuple[str, int]:
    """Replace bytes that cannot be decoded as Java does, where half a surrogate pair is one replacement."""
    assert isinstance(error, UnicodeDecodeError)
    data, end = error.object, error.end
    if data[error.start] == 0xED and 0xA0 <= int.from_bytes(data[error.start + 1 : error.start + 2], "big") <= 0xBF:
        end = error.start + 2
        end += data[end : end + 1] != b"" and 0x80 <= data[end] <= 0xBF
    return "\ufffd", end


codecs.register_error(_JAVA_UTF8, _replaced_by_java)


def _precision(type_text: str, default: int) -> int:
    found = re.search(r"\((\d+)", type_text)
    return int(found[1]) if found else default


def _time_text(value: time, precision: int) -> str:
    digits = f"{value.microsecond // 1000:03d}"[:precision].rstrip("0") or "0"
    return f"{value:%H:%M:%S}" + (f".{digits}" if precision else "")


def _timestamp_text(scalar: pa.Scalar, type_text: str, legacy: bool, zone: TimeZone) -> str:
    per_second = 1_000_000_000 if scalar.type.unit == "ns" else 1_000_000
    seconds, fraction = divmod(scalar.value, per_second)
    nanos = fraction * (1_000_000_000 // per_second)
    if scalar.type.tz and not legacy:
        seconds += zone.offset(seconds)
    moment = _EPOCH + timedelta(seconds=seconds)
    if legacy:
        return _local_date_time_text(moment, nanos)
    digits = f"{nanos:09d}"
    precision = _precision(type_text, 6)
    kept = digits[:precision] + digits[precision:].rstrip("0")
    return moment.isoformat(" ", "seconds") + (f".{kept}" if kept else "")


def _local_date_time_text(moment: datetime, nanos: int) -> str:
    """As Java's `LocalDateTime.toString()`: seconds only if they are not 0, fractions of 3, 6 or 9 digits."""
    text = moment.isoformat("T", "minutes")
    if not moment.second and not nanos:
        return text
    text += f":{moment.second:02d}"
    digits = f"{nanos:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{text}.{digits}" if digits else text


def java_float_text(value: float, single: bool) -> str:
    """As Java's `Float.toString` and `Double.toString` (JDK 19 on): the shortest text that parses to the value."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = Decimal(_shortest(value, single)).normalize().as_tuple()
    assert isinstance(exponent, int)
    point = len(digits) + exponent
    figures = "".join(map(str, digits))
    prefix = "-" if sign else ""
    if value == 0:
        return f"{prefix}0.0"
    if 1e-3 <= abs(value) < 1e7:
        plain = f"{Decimal((0, digits, exponent)):f}"
        return prefix + (plain if "." in plain else f"{plain}.0")
    return f"{prefix}{figures[0]}.{figures[1:] or '0'}E{point - 1}"


def _shortest(value: float, single: bool) -> str:
    rounded: Callable[[str], float] = (lambda text: c_float(float(text)).value) if single else float
    # Java uses at least two digits, as in the smallest number: 4.9E-324.
    texts = (f"{value:.{digits}g}" for digits in range(2, 18))
    return next(text for text in texts if rounded(text) == value)
