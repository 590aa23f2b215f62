"""`JsonFields`: reads the fields of a JSON object and checks the type of each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pypaimon.streaming.errors import StreamConfigError

T = TypeVar("T")


class JsonFields:
    """The fields of one JSON object. A field of another type is a ValueError; unknown fields are ignored."""

    def __init__(self, what: str, value: Mapping[str, Any]) -> None:
        self._what = what
        self._value = value

    def check_version(self, newest: int) -> None:
        """Refuse an object that a newer release wrote."""
        version = self.get("version", int)
        if version > newest:
            raise StreamConfigError(
                f"{self._what} of format version {version}: this library reads up to {newest}; update it"
            )

    def get(self, key: str, kind: type[T]) -> T:
        """A required field. True and False do not count as int."""
        found = self._value.get(key)
        if not isinstance(found, kind) or (isinstance(found, bool) and kind is int):
            raise ValueError(f"{key}: expected {kind.__name__}, got {found!r}")
        return found

    def optional(self, key: str, kind: type[T]) -> T | None:
        """As `get`, but None if the field is missing or null."""
        return None if self._value.get(key) is None else self.get(key, kind)

    def texts(self, key: str) -> tuple[str, ...]:
        """A required list of strings."""
        found = self.get(key, list)
        if not all(isinstance(each, str) for each in found):
            raise ValueError(f"{key}: expected text, got {found!r}")
        return tuple(found)

    def object(self, key: str) -> JsonFields:
        return fields_of(self._value.get(key), key)

    def objects(self, key: str) -> list[JsonFields]:
        return [fields_of(each, key) for each in self.get(key, list)]


def fields_of(value: object, what: str) -> JsonFields:
    """The fields of a JSON object that was decoded before.

    Raises:
        ValueError: The value is not an object.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"{what}: expected a JSON object, got {value!r}")
    return JsonFields(what, value)


def parse_fields(text: str | bytes, what: str) -> JsonFields:
    """The fields of a JSON object as text.

    Raises:
        ValueError: The text is not JSON, or not an object.
    """
    return fields_of(json.loads(text), what)


def canonical_json(value: Mapping[str, Any]) -> str:
    """JSON without spaces, keys in the order of the mapping: equal values are equal texts."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
