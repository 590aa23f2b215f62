"""Checks of an ORC file before Arrow reads it.

Arrow's reader (ORC C++) trusts the file, and a damaged one would end the process instead of raising an error:

- a zstd block that cannot be decompressed makes it read beyond its buffers (SIGSEGV). `check_stripe` decompresses all
  zstd blocks of the columns that are read;
- it allocates the sizes that the footer and the stripes name, however large (`bad_alloc`, or the kernel's OOM killer).
  `OrcChecks` compares stripes with the size of the file, `read_tail` the block size with a limit, and `check_stripe`
  the number of entries of each dictionary with the bytes that it holds;
- it recurses through the tree of types, so that a type which contains itself overflows the stack. `_columns` accepts
  only a tree in preorder, of at most 100 levels.

Lengths of texts, lists and maps inside a stripe that is not compressed are not checked, which would halve the speed: a
damaged one may still end the process (docs/guarantees.md).
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import pyarrow.orc as orc

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.formats.orc_tail import (
    HEADER_SIZE,
    LENGTH_DELIMITED,
    VARINT,
    Field,
    FooterField,
    OrcTail,
    ReadRange,
    TypeField,
    decompressed_blocks,
    encode,
    fields,
    integers,
    numbers,
    read_tail,
)

# Kinds of types, streams and encodings, and a codec, as ORC numbers them.
_LIST, _MAP, _STRUCT, _UNION = 10, 11, 12, 13
_CHILDREN = {_LIST: 1, _MAP: 2, _STRUCT: None, _UNION: None}
"""How many child types a type has; None: any number, not listed: none."""
_TEXTS = frozenset((7, 8, 16, 17))
"""Types whose values are bytes: STRING, BINARY, VARCHAR, CHAR."""
_MUCH = 1 << 30
_WIDTH = 8
"""Bytes of any other value, or of the offset of a text, about."""
_ZSTD = 5
_DATA, _DICTIONARY_DATA, _ROW_INDEX, _BLOOM_FILTER, _BLOOM_FILTER_UTF8 = 1, 3, 6, 7, 8
_INDEX_STREAMS = frozenset((_ROW_INDEX, _BLOOM_FILTER, _BLOOM_FILTER_UTF8))
_DICTIONARY, _DICTIONARY_V2 = 1, 3
_DICTIONARY_ENCODINGS = frozenset((_DICTIONARY, _DICTIONARY_V2))
_DEEPEST = 100
_MAGIC_SIZE = 3


class StripeField(IntEnum):
    """Field numbers of `StripeInformation` in ORC's `orc_proto.proto`; its other messages follow."""

    OFFSET = 1
    INDEX_LENGTH = 2
    DATA_LENGTH = 3
    FOOTER_LENGTH = 4
    ROWS = 5


class _StripeFooterField(IntEnum):
    STREAMS = 1
    ENCODINGS = 2
    WRITER_ZONE = 3


class _StreamField(IntEnum):
    KIND = 1
    COLUMN = 2
    LENGTH = 3


class _EncodingField(IntEnum):
    KIND = 1
    DICTIONARY_SIZE = 2


@dataclass(frozen=True, slots=True)
class Stripe:
    """Where a stripe is: its indexes and data from `offset` to `footer`, its footer from there to `end`."""

    offset: int
    footer: int
    end: int
    rows: int


@dataclass(frozen=True, slots=True)
class _DataStream:
    column: int
    kind: int
    start: int
    end: int


class OrcChecks:
    """Checks of one file. Raises ValueError if the footer contradicts itself or the size of the file."""

    def __init__(self, tail: OrcTail, read: ReadRange) -> None:
        self.tail = tail
        self._read = read
        types = _messages(tail.footer, FooterField.TYPES)
        try:
            self._columns = _columns(types)
            self.stripes = tuple(_stripes(tail))
        except (IndexError, KeyError) as error:
            raise ValueError(f"the ORC footer cannot be decoded: {error!r}") from error
        self._types = len(types)
        self._kinds = [dict(numbers(message)).get(TypeField.KIND, 0) for message in types]
        if sum(stripe.rows for stripe in self.stripes) != dict(numbers(tail.footer)).get(FooterField.ROWS, 0):
            raise ValueError("the stripes of the ORC file hold more or fewer rows than its footer says")

    def ranges(self, index: int, columns: Sequence[str]) -> list[tuple[int, int]]:
        """Where the data of columns is in one stripe, in stored order: first byte and length of each piece."""
        streams, wanted = self._footer(index)[0], self._wanted(columns)
        return [(each.start, each.end - each.start) for each in streams if each.column in wanted]

    def check_stripe(self, index: int, columns: Sequence[str] | None = None, *, whole: bool = False) -> int:
        """Check the columns of one stripe that will be read. If `whole`, all of their data is read now, including data
        that needs no check. Raises ValueError if the stripe is damaged.

        Returns about the bytes of the decoded rows: entries of a dictionary are assumed to be equally long and
        frequent.
        """
        rows = self.stripes[index].rows
        streams, encodings = self._footer(index)
        if len(encodings) < self._types:
            raise ValueError("an ORC stripe lacks columns")
        wanted = self._wanted(columns)
        held: dict[int, int] = {}
        decoded = rows * len(wanted) * _WIDTH
        for stream in streams:
            if stream.column not in wanted:
                continue
            dictionary = stream.kind == _DICTIONARY_DATA
            if dictionary or self.tail.codec == _ZSTD:
                size = self._decompressed_size(stream)
                if dictionary:
                    held[stream.column] = size
            else:
                stored = self._read(stream.start, stream.end) if whole else None
                size = self._most_decompressed(stream, stored) if self._kinds[stream.column] in _TEXTS else 0
            decoded += 0 if dictionary or stream.kind != _DATA else size
        for type_id in wanted:
            encoding = encodings[type_id]
            if entries := encoding.get(_EncodingField.DICTIONARY_SIZE, 0):
                decoded += rows * held.get(type_id, 0) // entries
            encoded = encoding.get(_EncodingField.KIND) in _DICTIONARY_ENCODINGS
            # Entries of a dictionary are distinct, so only one of them can be empty.
            if encoded and encoding.get(_EncodingField.DICTIONARY_SIZE, 0) > held.get(type_id, 0) + 1:
                raise ValueError("a dictionary of an ORC stripe is larger than what it holds")
        return decoded

    def part(self, index: int, columns: Sequence[str]) -> tuple[bytes, bytes]:
        """The bytes of a stripe, with zeros for indexes and for columns that are not named; and of its footer."""
        stripe = self.stripes[index]
        content = bytearray(stripe.footer - stripe.offset)
        for start, length in self.ranges(index, columns):
            content[start - stripe.offset : start - stripe.offset + length] = self._read(start, start + length)
        return bytes(content), self._read(stripe.footer, stripe.end)

    def writer_zone(self, index: int) -> str | None:
        """The time zone of the writer of a stripe. Java stores it only if some column is a TIMESTAMP without zone."""
        names = _messages(self._stripe_footer(index), _StripeFooterField.WRITER_ZONE)
        return names[-1].decode() if names else None

    def in_zone(self, name: str, kinds: Mapping[int, int]) -> tuple[bytes, dict[int, bytes]]:
        """Rewrite the footers as if the writer were in another time zone, and timestamps of another kind. Returns the
        end of the file, from the footer on, and the footers of the stripes by their positions.
        """
        parts = {}
        for index, stripe in enumerate(self.stripes):
            parts[stripe.footer] = self.zoned_footer(index, name)
        lengths = iter(parts.values())
        footer = [
            (number, wire, _with_footer(value, len(next(lengths))) if number == FooterField.STRIPES else value)
            for number, wire, value in self.tail.retyped(kinds)
        ]
        return self.tail.end(footer), parts

    def zoned_footer(self, index: int, name: str, *, indexes: bool = True) -> bytes:
        """The stored footer of a stripe with another time zone of the writer; raises as `in_zone`."""
        footer: list[Field] = [(_StripeFooterField.WRITER_ZONE, LENGTH_DELIMITED, name.encode())]
        for number, wire, value in self._stripe_footer(index):
            is_index = number == _StripeFooterField.STREAMS and _is_index(dict(numbers(value)))
            if number != _StripeFooterField.WRITER_ZONE and (indexes or not is_index):
                footer.append((number, wire, value))
        return self.tail.stored(encode(footer))

    def type_of(self, column: str) -> int:
        return next(ids[0] for name, ids in self._columns if name == column)

    def _stripe_footer(self, index: int) -> list[Field]:
        stripe = self.stripes[index]
        return list(fields(self.tail.decompressed(self._read(stripe.footer, stripe.end))))

    def _footer(self, index: int) -> tuple[list[_DataStream], list[dict[int, int]]]:
        stripe, footer = self.stripes[index], self._stripe_footer(index)
        encodings = [dict(numbers(value)) for value in _messages(footer, _StripeFooterField.ENCODINGS)]
        return list(_streams(stripe, _messages(footer, _StripeFooterField.STREAMS))), encodings

    def _wanted(self, columns: Sequence[str] | None) -> set[int]:
        return {0, *(type_id for name, ids in self._columns if columns is None or name in columns for type_id in ids)}

    def _decompressed_size(self, stream: _DataStream) -> int:
        stored = self._read(stream.start, stream.end)
        if not self.tail.codec:
            return len(stored)
        return sum(map(len, decompressed_blocks(stored, self.tail.codec, self.tail.block_size)))

    def _most_decompressed(self, stream: _DataStream, stored: bytes | None) -> int:
        """An upper bound of the decompressed size of a stream, up to 1 GiB, from the headers of its blocks."""
        if not self.tail.codec:
            return stream.end - stream.start
        position = size = 0
        while position < stream.end - stream.start and size < _MUCH:
            end = position + HEADER_SIZE
            found = self._read(stream.start + position, stream.start + end) if stored is None else stored[position:end]
            header = int.from_bytes(found, "little")
            size += header >> 1 if header & 1 else self.tail.block_size
            position = end + (header >> 1)
        return size


def open_orc(stream: Any, read: ReadRange) -> tuple[OrcChecks | None, orc.ORCFile]:
    """Check the tail of a file, and open it. Returns checks to run before each stripe is read (None if only Arrow knows
    the compression), and the file. Raises ValueError if the tail is damaged.
    """
    try:
        checks = OrcChecks(read_tail(stream.seek(0, io.SEEK_END), read), read)
    except UnsupportedTableError:
        checks = None
    stream.seek(0)
    return checks, orc.ORCFile(stream)


def _columns(types: list[bytes]) -> list[tuple[str, range]]:
    """Name and types of each column. The types must be a tree in preorder."""
    children = [list(_subtypes(message)) for message in types]
    # From the leaves up: `ends[i]` is the id after the last type within type i. In preorder a type's next child begins
    # where the one before it ends.
    ends = list(range(1, len(types) + 1))
    depths = [0] * len(types)
    for index in reversed(range(len(types))):
        for child in children[index]:
            if child != ends[index] or child >= len(types):
                raise ValueError("the types of the ORC file are not a tree")
            ends[index] = ends[child]
            depths[index] = max(depths[index], depths[child] + 1)
        count = _CHILDREN.get(dict(numbers(types[index])).get(TypeField.KIND, 0), 0)
        if count is not None and count != len(children[index]):
            raise ValueError("a type of the ORC file has too many or too few children")
    if not types or ends[0] != len(types) or depths[0] > _DEEPEST:
        raise ValueError("the types of the ORC file are not a tree, or nested too deeply")
    names = [value.decode("utf-8", "replace") for value in _messages(fields(types[0]), TypeField.FIELD_NAMES)]
    return [(name, range(child, ends[child])) for name, child in zip(names, children[0], strict=True)]


def _messages(found: Iterable[Field], wanted: int) -> list[bytes]:
    return [value for number, wire, value in found if (number, wire) == (wanted, LENGTH_DELIMITED)]


def _subtypes(message: bytes) -> Iterator[int]:
    for number, wire, value in fields(message):
        if number == TypeField.SUBTYPES:
            # Protobuf allows a packed list, and one field per integer.
            yield from integers(value) if wire == LENGTH_DELIMITED else [value]


def _with_footer(stripe: bytes, length: int) -> bytes:
    others = [field for field in fields(stripe) if field[0] != StripeField.FOOTER_LENGTH]
    return encode([*others, (StripeField.FOOTER_LENGTH, VARINT, length)])


def _is_index(stream: Mapping[int, int]) -> bool:
    return stream.get(_StreamField.KIND, 0) in _INDEX_STREAMS


def _streams(stripe: Stripe, messages: list[bytes]) -> Iterator[_DataStream]:
    """The streams that hold data; only the lengths of streams are stored."""
    start = stripe.offset
    for message in messages:
        found = dict(numbers(message))
        end = start + found.get(_StreamField.LENGTH, 0)
        if end > stripe.footer:
            raise ValueError("a stream of an ORC stripe is cut off")
        if not _is_index(found):
            yield _DataStream(found.get(_StreamField.COLUMN, 0), found.get(_StreamField.KIND, 0), start, end)
        start = end


def _stripes(tail: OrcTail) -> Iterator[Stripe]:
    position = _MAGIC_SIZE
    for number, wire, value in tail.footer:
        if (number, wire) != (FooterField.STRIPES, LENGTH_DELIMITED):
            continue
        found = dict(numbers(value))
        offset = found.get(StripeField.OFFSET, 0)
        footer = offset + found.get(StripeField.INDEX_LENGTH, 0) + found.get(StripeField.DATA_LENGTH, 0)
        end = footer + found.get(StripeField.FOOTER_LENGTH, 0)
        stripe = Stripe(offset, footer, end, found.get(StripeField.ROWS, 0))
        if not position <= offset or stripe.end > tail.metadata:
            raise ValueError("a stripe is outside of the ORC file")
        position = stripe.end
        yield stripe
