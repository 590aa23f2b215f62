"""`OrcPieces`: a stripe of an ORC file, some rows at a time.

pyarrow's reader of ORC files gives whole stripes, which may be much larger than what is stored: texts of a dictionary
are, and what compresses well. Only its datasets read rows in batches, from a file of their own: one of this stripe.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from pypaimon.streaming.formats import row_pace
from pypaimon.streaming.formats.orc_checks import OrcChecks, StripeField
from pypaimon.streaming.formats.orc_tail import LENGTH_DELIMITED, VARINT, FooterField, encode

_MAGIC = b"ORC"
_MOST_ROWS = 16_384
_OF_OTHERS = (FooterField.CONTENT_LENGTH, FooterField.STRIPES, FooterField.ROWS, FooterField.STATISTICS)


class OrcPieces:
    """One stripe, whose parts have about `row_pace.DECODED_BYTES`.

    Args:
        checks: Of its file; they have looked at it.
        index: Its number.
        columns: Those that are read.
        decoded: Bytes that it takes once it is decoded, about.
        batch_size: Rows of a part, at most.
    """

    def __init__(self, checks: OrcChecks, index: int, columns: Sequence[str], decoded: int, batch_size: int) -> None:
        self._checks = checks
        self._index = index
        self._columns = list(columns)
        self._data, self._footer = checks.part(index, columns)
        rows = checks.stripes[index].rows * row_pace.DECODED_BYTES // max(decoded, 1)
        self._rows = max(1, min(rows, _MOST_ROWS, batch_size))

    def batches(self, zone: str | None = None, kinds: Mapping[int, int] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows in their order, as `OrcChecks.in_zone` has the whole file.

        Args:
            zone: The time zone of another writer; None: that of the stripe.
            kinds: Kinds by the types (by their places in the footer) that come to have them.
        """
        # Seldom needed, and slow to import.
        import pyarrow.dataset

        footer = self._footer if zone is None else self._checks.zoned_footer(self._index, zone)
        content = b"".join((_MAGIC, self._data, footer, self._end(len(footer), kinds or {})))
        fragment = pyarrow.dataset.OrcFileFormat().make_fragment(pa.BufferReader(content))
        yield from fragment.to_batches(
            columns=self._columns,
            batch_size=self._rows,
            batch_readahead=0,
            fragment_readahead=0,
            use_threads=False,
        )

    def _end(self, footer_length: int, kinds: Mapping[int, int]) -> bytes:
        """The end of a file of this stripe alone, which has no statistics."""
        rows = self._checks.stripes[self._index].rows
        stripe = {
            StripeField.OFFSET: len(_MAGIC),
            # Indexes are told to be data: nothing reads them.
            StripeField.DATA_LENGTH: len(self._data),
            StripeField.FOOTER_LENGTH: footer_length,
            StripeField.ROWS: rows,
        }
        tail = self._checks.tail
        footer = [field for field in tail.retyped(kinds) if field[0] not in _OF_OTHERS]
        footer += [
            (FooterField.CONTENT_LENGTH, VARINT, len(_MAGIC) + len(self._data) + footer_length),
            (FooterField.STRIPES, LENGTH_DELIMITED, encode([(key, VARINT, value) for key, value in stripe.items()])),
            (FooterField.ROWS, VARINT, rows),
        ]
        return tail.end(footer, metadata_length=0)
