"""`BadInputError`: what `paimon-stream write` cannot take."""

from __future__ import annotations

from pypaimon.streaming.errors import PaimonStreamError


class BadInputError(PaimonStreamError, ValueError):
    """The input cannot be read as its format, or does not fit the table."""
