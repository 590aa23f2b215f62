"""What has to be sound in an ORC file before Arrow reads it.

Arrow's reader (ORC C++) trusts some of what it finds. A zstd block that cannot be decompressed makes it read beyond its
buffers, which ends the process; the sizes of stripes and dictionaries are allocated whatever they are. So footers, and
the zstd blocks of the columns that are read, are looked at here first.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.orc as orc

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.formats import orc_blocks
from pypaimon.streaming.formats.orc_tail import OrcTail, ReadRange, fields, integers, numbers, read_tail

_LIST, _MAP, _STRUCT, _UNION = 10, 11, 12, 13
_CHILDREN = {_LIST: 1, _MAP: 2, _STRUCT: None, _UNION: None}
"""How many parts types have; None for any number, not named for none."""
_ZSTD = 5
_INDEX_STREAMS = frozenset((6, 7, 8))
_DICTIONARY_DATA = 3
_DICTIONARY_ENCODINGS = frozenset((1, 3))
_DEEPEST = 100
_MAGIC_SIZE = 3


@dataclass(frozen=True, slots=True)
class Stripe:
    """Where a stripe lies: indexes and data from `offset` to `footer`, its footer from there to `end`."""

    offset: int
    footer: int
    end: int
    rows: int


@dataclass(frozen=True, slots=True)
class _Stream:
    column: int
    kind: int
    start: int
    end: int


class OrcChecks:
    """Checks of one file.

    Args:
        tail: Its tail.
        read: Reads it.

    Attributes:
        tail: Its tail.
        stripes: Its stripes, in their order.

    Raises:
        ValueError: The footer contradicts itself or the size of the file.
    """

    def __init__(self, tail: OrcTail, read: ReadRange) -> None:
        self.tail = tail
        self._read = read
        types = [value for number, wire, value in tail.footer if (number, wire) == (4, 2)]
        try:
            self._columns = _columns(types)
            self.stripes = tuple(_stripes(tail))
        except (IndexError, KeyError) as error:
            raise ValueError(f"the ORC footer cannot be decoded: {error!r}") from error
        self._types = len(types)
        if sum(stripe.rows for stripe in self.stripes) != dict(numbers(tail.footer)).get(6, 0):
            raise ValueError("the stripes of the ORC file hold more or fewer rows than its footer says")

    def check_stripe(self, index: int, columns: Sequence[str] | None = None) -> None:
        """Look at one stripe.

        Args:
            index: Its number.
            columns: Those that are read; all if None.

        Raises:
            ValueError: It is damaged.
        """
        stripe = self.stripes[index]
        footer = list(fields(self.tail.decompressed(self._read(stripe.footer, stripe.end))))
        encodings = [dict(numbers(value)) for number, wire, value in footer if (number, wire) == (2, 2)]
        if len(encodings) < self._types:
            raise ValueError("an ORC stripe lacks columns")
        wanted = {type_id for name, ids in self._columns if columns is None or name in columns for type_id in ids}
        wanted.add(0)
        held: dict[int, int] = {}
        for stream in _streams(stripe, [value for number, wire, value in footer if (number, wire) == (1, 2)]):
            dictionary = stream.kind == _DICTIONARY_DATA
            if stream.column in wanted and (dictionary or self.tail.codec == _ZSTD):
                size = self._decompressed_size(stream)
                if dictionary:
                    held[stream.column] = size
        for type_id in wanted:
            encoding = encodings[type_id]
            # Only one entry can be without a byte.
            if encoding.get(1) in _DICTIONARY_ENCODINGS and encoding.get(2, 0) > held.get(type_id, 0) + 1:
                raise ValueError("a dictionary of an ORC stripe is larger than what it holds")

    def _decompressed_size(self, stream: _Stream) -> int:
        stored = self._read(stream.start, stream.end)
        if not self.tail.codec:
            return len(stored)
        return sum(map(len, orc_blocks.decompressed_blocks(stored, self.tail.codec, self.tail.block_size)))


def open_orc(stream: Any, read: ReadRange) -> tuple[OrcChecks | None, orc.ORCFile]:
    """Open a file whose tail is sound.

    Args:
        stream: The file.
        read: Reads it.

    Returns:
        Checks of its stripes, to be done before they are read, None where only Arrow knows the compression; the file.

    Raises:
        ValueError: The tail is damaged.
    """
    try:
        checks = OrcChecks(read_tail(stream.seek(0, io.SEEK_END), read), read)
    except UnsupportedTableError:
        checks = None
    stream.seek(0)
    return checks, orc.ORCFile(stream)


def _columns(types: list[bytes]) -> list[tuple[str, range]]:
    """Name and types of each column.

    Types are a tree in preorder: each but the first is named once, by the type that holds it.
    """
    children = [list(_subtypes(message)) for message in types]
    ends = list(range(1, len(types) + 1))
    depths = [0] * len(types)
    for index in reversed(range(len(types))):
        for child in children[index]:
            if child != ends[index] or child >= len(types):
                raise ValueError("the types of the ORC file are no tree")
            ends[index] = ends[child]
            depths[index] = max(depths[index], depths[child] + 1)
        count = _CHILDREN.get(dict(numbers(types[index])).get(1, 0), 0)
        if count is not None and count != len(children[index]):
            raise ValueError("a type of the ORC file has more or fewer parts than it can have")
    if not types or ends[0] != len(types) or depths[0] > _DEEPEST:
        raise ValueError("the types of the ORC file are no tree, or too deep a one")
    names = [value.decode("utf-8", "replace") for number, wire, value in fields(types[0]) if (number, wire) == (3, 2)]
    return [(name, range(child, ends[child])) for name, child in zip(names, children[0], strict=True)]


def _subtypes(message: bytes) -> Iterator[int]:
    for number, wire, value in fields(message):
        if number == 2:
            yield from integers(value) if wire == 2 else [value]


def _streams(stripe: Stripe, messages: list[bytes]) -> Iterator[_Stream]:
    """The streams that hold data."""
    start = stripe.offset
    for message in messages:
        found = dict(numbers(message))
        end = start + found.get(3, 0)
        if end > stripe.footer:
            raise ValueError("a stream of an ORC stripe is cut off")
        if found.get(1, 0) not in _INDEX_STREAMS:
            yield _Stream(found.get(2, 0), found.get(1, 0), start, end)
        start = end


def _stripes(tail: OrcTail) -> Iterator[Stripe]:
    position = _MAGIC_SIZE
    for number, wire, value in tail.footer:
        if (number, wire) != (3, 2):
            continue
        found = dict(numbers(value))
        offset = found.get(1, 0)
        footer = offset + found.get(2, 0) + found.get(3, 0)
        stripe = Stripe(offset, footer, footer + found.get(4, 0), found.get(5, 0))
        if not position <= offset or stripe.end > tail.metadata:
            raise ValueError("a stripe of the ORC file is outside of it")
        position = stripe.end
        yield stripe
