"""`OrcPieces`: a stripe of an ORC file, some rows at a time.

pyarrow's reader of ORC files gives whole stripes, which may be much larger than what is stored: texts of a dictionary
are, and what compresses well. Only its datasets read rows in batches, from a file of their own: one of this stripe.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from pypaimon.streaming.formats import row_pace
from pypaimon.streaming.formats.orc_checks import OrcChecks, StripeField
from pypaimon.streaming.formats.orc_tail import (
    LENGTH_DELIMITED,
    VARINT,
    FooterField,
    OrcTail,
    PostscriptField,
    encoded,
)

_MAGIC = b"ORC"
_MOST_ROWS = 16_384


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
        stripe = checks.stripes[index]
        self._columns = list(columns)
        self._content = _MAGIC + checks.part(index, columns)
        self._tail = _tail_of_one(checks.tail, self._content, stripe.footer - stripe.offset, stripe.rows)
        rows = stripe.rows * row_pace.DECODED_BYTES // max(decoded, 1)
        self._rows = max(1, min(rows, _MOST_ROWS, batch_size))

    def batches(self, as_seconds: Collection[int] = ()) -> Iterator[pa.RecordBatch]:
        """The rows in their order.

        Args:
            as_seconds: Types, by their number, of timestamps that come as whole seconds.
        """
        # Seldom needed, and slow to import.
        import pyarrow.dataset

        content = self._tail.with_seconds(self._content, set(as_seconds))
        fragment = pyarrow.dataset.OrcFileFormat().make_fragment(pa.BufferReader(content))
        yield from fragment.to_batches(
            columns=self._columns,
            batch_size=self._rows,
            batch_readahead=0,
            fragment_readahead=0,
            use_threads=False,
        )


def _tail_of_one(tail: OrcTail, content: bytes, data_length: int, rows: int) -> OrcTail:
    """The tail of a file of one stripe, which has no statistics."""
    stripe = {
        StripeField.OFFSET: len(_MAGIC),
        # Indexes are told to be data: nothing reads them.
        StripeField.DATA_LENGTH: data_length,
        StripeField.FOOTER_LENGTH: len(content) - len(_MAGIC) - data_length,
        StripeField.ROWS: rows,
    }
    message = encoded([(number, VARINT, value) for number, value in stripe.items()])
    changed = (FooterField.CONTENT_LENGTH, FooterField.STRIPES, FooterField.ROWS, FooterField.STATISTICS)
    footer = [field for field in tail.footer if field[0] not in changed]
    footer += [
        (FooterField.CONTENT_LENGTH, VARINT, len(content)),
        (FooterField.STRIPES, LENGTH_DELIMITED, message),
        (FooterField.ROWS, VARINT, rows),
    ]
    postscript = [
        (number, wire, 0 if number == PostscriptField.METADATA_LENGTH else value)
        for number, wire, value in tail.postscript
    ]
    return replace(tail, metadata=len(content), body=len(content), postscript=postscript, footer=footer)
