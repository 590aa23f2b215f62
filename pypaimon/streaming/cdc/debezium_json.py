"""Debezium's change events as JSON, with and without Kafka Connect's schema around them."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from hashlib import md5
from typing import Any, Literal

from pypaimon.streaming.cdc.change_records import Declared, Event, Row, UnreadableError, needed_row, row_of
from pypaimon.streaming.model.row_kinds import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE

_TYPES = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "float32": "FLOAT",
    "double": "DOUBLE",
    "float64": "DOUBLE",
    "boolean": "BOOLEAN",
    "bytes": "BYTES",
}
_MEANINGS: dict[Any, Declared] = {
    "io.debezium.time.Date": Declared("DATE", "d"),
    "io.debezium.time.Time": Declared("TIME(3)", "ms"),
    "io.debezium.time.MicroTime": Declared("TIME(3)", "us"),
    "io.debezium.time.NanoTime": Declared("TIME(3)", "ns"),
    "io.debezium.time.Timestamp": Declared("TIMESTAMP(3)", "ms", clock="numbers"),
    "io.debezium.time.MicroTimestamp": Declared("TIMESTAMP(6)", "us", clock="numbers"),
    "io.debezium.time.NanoTimestamp": Declared("TIMESTAMP(9)", "ns", clock="numbers"),
    "io.debezium.time.ZonedTimestamp": Declared("TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    # With `time.precision.mode` = `isostring` Debezium puts a Z after each clock, whatever its zone.
    "io.debezium.time.IsoDate": Declared("DATE", clock="all"),
    "io.debezium.time.IsoTime": Declared("TIME(3)", clock="all"),
    "io.debezium.time.IsoTimestamp": Declared("TIMESTAMP(6)", clock="all"),
    "org.apache.kafka.connect.data.Date": Declared("DATE", "d"),
    "org.apache.kafka.connect.data.Time": Declared("TIME(3)", "ms"),
    "org.apache.kafka.connect.data.Timestamp": Declared("TIMESTAMP(3)", "ms", clock="numbers"),
}
_MOST_DIGITS = 38
_PLACEHOLDER = "__debezium_unavailable_value"
_HEX = "hex:"


class DebeziumJson:
    """Events of Debezium: `op` is c (create), r (read in a snapshot), u (update) or d (delete).

    An update without the old row (PostgreSQL's REPLICA IDENTITY DEFAULT) becomes only +U. Messages of the database's
    log (op m) do not change rows. Tombstones are skipped, because the delete before them has the same effect. A value
    that the database did not send is an error in a new row, and null in an old one, as in deletes with only the key.
    """

    # All timestamps that Debezium writes as numbers are local times of the database, without a zone.
    silent = Declared(clock="numbers")

    def __init__(self, unavailable: UnavailableValue) -> None:
        self._unavailable = unavailable

    def read(self, record: Row) -> Event:
        payload: Any = record
        if "payload" in record and "op" not in record:
            payload = record["payload"]
            if payload is None:
                return Event([])
            if not isinstance(payload, Mapping):
                raise UnreadableError(f"expected an object, got {type(payload).__name__}", "payload")
        types = _row_fields(record.get("schema"))
        op = payload.get("op")
        if op in ("c", "r"):
            return Event([(INSERT, self._complete(needed_row(payload, "after")))], types)
        if op == "u":
            after, before = self._complete(needed_row(payload, "after")), row_of(payload, "before")
            changes = [(UPDATE_AFTER, after)]
            return Event([(UPDATE_BEFORE, self._known(before)), *changes] if before is not None else changes, types)
        if op == "d":
            return Event([(DELETE, self._known(needed_row(payload, "before")))], types)
        if op == "m":
            return Event([])
        if op == "t":
            raise UnreadableError("the table was truncated, which does not change single rows: overwrite the target")
        if op is None:
            raise UnreadableError(
                "it lacks the field 'op', so it is not a change event of Debezium: plain rows, schema changes, "
                "heartbeats and transaction markers are not read"
            )
        raise UnreadableError(f"expected c, r, u, d, m or t, got {op!r}", "op")

    def declared(self, types: Any) -> Mapping[str, Declared]:
        """See `ChangeFormat`. From Connect's schema."""
        return {field["field"]: _declared(field) for field in types or () if isinstance(field.get("field"), str)}

    def _complete(self, row: Row) -> Row:
        for column, value in row.items():
            if self._unavailable.is_in(value):
                raise UnreadableError(
                    "the database did not send the value, because it did not change (Debezium has written a "
                    "placeholder instead): have it log whole rows (PostgreSQL: REPLICA IDENTITY FULL, MySQL: "
                    "binlog_row_image=full), or have Debezium's ReselectColumnsPostProcessor fetch the value",
                    column,
                )
        return row

    def _known(self, row: Row) -> Row:
        return {column: None if self._unavailable.is_in(value) else value for column, value in row.items()}


def _row_fields(schema: Any) -> Sequence[Mapping[str, Any]] | None:
    fields = (schema.get("fields") or []) if isinstance(schema, Mapping) else []
    if not isinstance(fields, list):
        raise UnreadableError(f"expected a list of 'fields', got {type(fields).__name__}", "schema")
    for field in fields:
        if isinstance(field, Mapping) and field.get("field") == "after" and isinstance(field.get("fields"), list):
            return [each for each in field["fields"] if isinstance(each, Mapping)]
    return None


def _declared(field: Mapping[str, Any]) -> Declared:
    name, kind = str(field.get("name")), field.get("type")
    if name in _MEANINGS:
        return _MEANINGS[name]
    if name == "org.apache.kafka.connect.data.Decimal":
        parameters = field.get("parameters") or {}
        try:
            scale = int(parameters.get("scale", 0))
            digits = int(parameters.get("connect.decimal.precision", _MOST_DIGITS))
        except (AttributeError, TypeError, ValueError):
            raise UnreadableError(f"expected the digits of a decimal, got {parameters!r}", "schema") from None
        fits = 0 <= scale <= digits <= _MOST_DIGITS
        return Declared(f"DECIMAL({digits}, {scale})" if fits else "STRING", scale=scale)
    if str(kind) in _TYPES:
        return Declared(_TYPES[str(kind)])
    # Arrays, maps and structs become text: their JSON.
    return Declared("STRING", clock=_clock_of_items(field.get("items")))


def _clock_of_items(items: Any) -> Literal["numbers", "all"] | None:
    meaning = _MEANINGS.get(str(items.get("name"))) if isinstance(items, Mapping) else None
    return "numbers" if meaning is None else meaning.clock


class UnavailableValue:
    """Recognises a placeholder in the form that Debezium gives it for each type of column.

    PostgreSQL does not send an unchanged value that is stored out of line (TOAST); Oracle, SQL Server and MySQL
    (`binlog_row_image` = `noblob`) do not send unchanged large objects. Debezium writes the placeholder as text, for
    bytes as base64 or hexadecimal, for arrays of text, bytes and UUIDs with one item, for arrays of numbers and dates
    with one number for each byte, and for `hstore` as a map or its JSON.
    """

    def __init__(self, placeholder: str = _PLACEHOLDER) -> None:
        """
        Args:
            placeholder: The connector's `unavailable.value.placeholder`; `hex:` and digits mean bytes.

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
        # Tuples, not sets: comparing a long text reads all of it only if it is equal, hashing it always does.
        self._texts = (*spelled, json.dumps(self._map, ensure_ascii=False, separators=(",", ":")))
        self._items = (*spelled, str(named))
        # Java's bytes are signed.
        self._numbers = [byte - 256 if byte > 127 else byte for byte in raw]

    def is_in(self, value: Any) -> bool:
        if isinstance(value, str):
            return value in self._texts
        if isinstance(value, list):
            (first,) = value if len(value) == 1 else (None,)
            return (isinstance(first, str) and first in self._items) or value == self._numbers
        return isinstance(value, dict) and value == self._map
