"""`UnavailableValue`: the placeholders that Debezium writes where the database did not say a value."""

from __future__ import annotations

import base64
import json
import uuid
from hashlib import md5
from typing import Any

DEFAULT = "__debezium_unavailable_value"
_HEX = "hex:"


class UnavailableValue:
    """Recognises a placeholder in the form that Debezium gives it for each type of column.

    PostgreSQL leaves out what did not change of a value that is stored apart (TOAST), Oracle, SQL Server and MySQL
    (`binlog_row_image` = `noblob`) leave out large objects. Debezium writes text as it is, bytes as base64 or
    hexadecimal, arrays of text, bytes and UUIDs with one item, arrays of numbers and dates with one number for each
    byte, and `hstore` as a map or its JSON.
    """

    def __init__(self, placeholder: str = DEFAULT) -> None:
        """
        Args:
            placeholder: As the connector's `unavailable.value.placeholder` has it; `hex:` and digits stand for bytes.

        Raises:
            ValueError: It is empty, or not hexadecimal.
        """
        is_hex = placeholder.startswith(_HEX)
        raw = bytes.fromhex(placeholder.removeprefix(_HEX)) if is_hex else placeholder.encode()
        if not raw:
            raise ValueError("expected a text that is not empty")
        text = raw.decode(errors="replace")
        spelled = (text, base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode(), raw.hex())
        # Java's UUID.nameUUIDFromBytes.
        named = uuid.UUID(bytes=md5(raw, usedforsecurity=False).digest(), version=3)
        self._map = {text: text}
        # Tuples, not sets: comparing a long text costs its length only where it is equal, hashing it always.
        self._texts = (*spelled, json.dumps(self._map, ensure_ascii=False, separators=(",", ":")))
        self._items = (*spelled, str(named))
        # Bytes of Java have signs.
        self._numbers = [byte - 256 if byte > 127 else byte for byte in raw]

    def is_in(self, value: Any) -> bool:
        """Whether a value of a row, as JSON has it, is a placeholder."""
        if isinstance(value, str):
            return value in self._texts
        if isinstance(value, list):
            (first,) = value if len(value) == 1 else (None,)
            return (isinstance(first, str) and first in self._items) or value == self._numbers
        return isinstance(value, dict) and value == self._map
