"""`OrcZone`: timestamps of an ORC file as a writer in Java has them whose JVM is in another time zone than UTC.

Arrow writes as in UTC. So the values are moved before, and the zone is put into the footers of the stripes afterwards.
"""

from __future__ import annotations

import io
import itertools
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.formats.orc_checks import OrcChecks, StripeField
from pypaimon.streaming.formats.orc_tail import (
    TIMESTAMP,
    VARINT,
    Field,
    FooterField,
    OrcTail,
    encode,
    numbers,
    read_tail,
    reads_of,
    with_bounds,
)
from pypaimon.streaming.formats.orc_zones import (
    ORC_EPOCH,
    Seconds,
    base_of,
    meant_by_java,
    moved,
    shown_by_java,
    split,
    with_timestamps,
)
from pypaimon.streaming.model.time_zone import TimeZone

_COPIED_BYTES = 1 << 20
_MAGIC = b"ORC"


class OrcZone:
    """The zone of one file.

    Args:
        zone: The zone.
    """

    def __init__(self, zone: TimeZone) -> None:
        self._zone = zone
        # From what Arrow writes, counted from 2015 in UTC, to the moment that is read, counted from 2015 in the zone.
        self._ahead = base_of(zone) - ORC_EPOCH

    def stored(self, data: pa.Table) -> pa.Table:
        """Rows as they are given to Arrow.

        Raises:
            UnsupportedTableError: A value cannot be stored in the zone.
        """
        for index, field in enumerate(data.schema):

            def turned(leaf: pa.Array, has_zone: bool, name: str = field.name) -> pa.Array:
                return self._local(name, leaf) if has_zone else self._clocks(name, leaf)

            chunks = [with_timestamps(chunk, field.type, turned) for chunk in data.column(index).chunks]
            data = data.set_column(index, field, pa.chunked_array(chunks, field.type))
        return data

    def _local(self, name: str, array: pa.Array) -> pa.Array:
        """The moment at which clocks of the zone show the time that a timestamp has in UTC."""
        shown = split(array)[0]
        meant = self._meant(name, array, shown)
        return moved(array, meant - shown)

    def _clocks(self, name: str, array: pa.Array) -> pa.Array:
        """What Arrow writes so that the moment is read at which clocks of the zone show a time."""
        shown, is_late = split(array)
        meant = self._meant(name, array, shown)
        written = meant - self._ahead
        # How ORC stores such a fraction depends on the side of 1970, and which side that was is not stored.
        unclear = is_late & (((meant < 0) != (written < 0)) | (meant == -1))
        self._refuse(name, array, unclear, "a fraction of a second so near to 1970")
        return moved(array, written - shown)

    def _meant(self, name: str, array: pa.Array, shown: Seconds) -> Seconds:
        meant = meant_by_java(self._zone, shown)
        self._refuse(name, array, shown_by_java(self._zone, meant) != shown, "a time that clocks skip there")
        return meant

    def _refuse(self, name: str, array: pa.Array, wrong: Any, what: str) -> None:
        found = array.filter(pa.array(wrong)).drop_null()
        if len(found):
            shown = found[0].cast(pa.timestamp(array.type.unit)).cast(pa.string())
            raise UnsupportedTableError(
                f"Column '{name}' holds {shown}, and ORC files of time zone {self._zone.name} do not hold {what}. Set "
                "'orc.timestamp-ltz.legacy.type' = 'false', then no zone is needed; or 'file.format' to parquet."
            )

    def put_into(self, target: Any, written: BinaryIO) -> None:
        """Copy a file that Arrow has written, with the zone in it.

        Left out are statistics of parts of the file: they are of other times, and with those of its own files, which
        are like these, Java's filters lose rows with the least and the greatest one.

        Args:
            target: Where to.
            written: The file.
        """
        size, read = written.seek(0, io.SEEK_END), reads_of(written)
        if not size:
            # Of no rows Arrow writes nothing.
            return
        tail = read_tail(size, read)
        checks = OrcChecks(tail, read)
        messages = (value for number, _, value in tail.footer if number == FooterField.STRIPES)
        target.write(_MAGIC)
        place, stripes = len(_MAGIC), []
        for index, (stripe, message) in enumerate(zip(checks.stripes, messages, strict=True)):
            found = dict(numbers(message))
            first = stripe.offset + found[StripeField.INDEX_LENGTH]
            for start in range(first, stripe.footer, _COPIED_BYTES):
                target.write(read(start, min(start + _COPIED_BYTES, stripe.footer)))
            footer = checks.zoned_footer(index, str(self._zone.name), indexes=False)
            target.write(footer)
            found |= {StripeField.OFFSET: place, StripeField.INDEX_LENGTH: 0, StripeField.FOOTER_LENGTH: len(footer)}
            stripes.append(encode([(number, VARINT, value) for number, value in sorted(found.items())]))
            place += stripe.footer - first + len(footer)
        target.write(tail.end(self._tail(tail, stripes, place), metadata_length=0))

    def _tail(self, tail: OrcTail, stripes: list[bytes], length: int) -> list[Field]:
        """The footer of the file.

        Args:
            tail: As Arrow has written it.
            stripes: Where its stripes are now.
            length: Bytes before it.
        """
        stripe, types, clocks = iter(stripes), itertools.count(), tail.of_kind(TIMESTAMP)
        footer: list[Field] = []
        for number, wire, value in tail.footer:
            if number == FooterField.STRIPES:
                value = next(stripe)
            elif number == FooterField.CONTENT_LENGTH:
                value = length - len(_MAGIC)
            elif number == FooterField.INDEX_STRIDE:
                value = 0
            elif number == FooterField.STATISTICS and next(types) in clocks:
                value = with_bounds(value, self._shown)
            footer.append((number, wire, value))
        return footer

    def _shown(self, millis: int) -> int:
        """A time as Arrow has written it, as clocks of the zone show it."""
        second = millis // 1000
        shown = shown_by_java(self._zone, np.array([second + self._ahead]))
        return millis + 1000 * (int(shown[0]) - second)
