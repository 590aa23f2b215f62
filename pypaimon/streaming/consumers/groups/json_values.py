"""What the files of a group are made of: typed values out of JSON, positions among them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.position import Position

T = TypeVar("T")

FORMAT_VERSION = 1
"""The newest of states and registers."""


def object_of(data: bytes, what: str) -> dict[str, Any]:
    """The JSON object of a file.

    Raises:
        ValueError: It is none; `StreamConfigError`, which is one too, if it is of a newer format version.
    """
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError(f"{what}: no JSON object")
    version = typed(value, "version", int)
    if version > FORMAT_VERSION:
        raise StreamConfigError(
            f"{what} of format version {version}: this library reads up to {FORMAT_VERSION}; update it"
        )
    return value


def typed(value: Any, key: str, kind: type[T]) -> T:
    """The value of a key.

    Raises:
        ValueError: It is missing, or of another type.
    """
    found = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
        raise ValueError(f"{key}: expected {kind.__name__}, got {found!r}")
    return found


def optional(value: Any, key: str, kind: type[T]) -> T | None:
    """As `typed`; None if it is missing or null."""
    return None if isinstance(value, Mapping) and value.get(key) is None else typed(value, key, kind)


def texts(value: Any, key: str) -> tuple[str, ...]:
    """A list of text; raises as `typed`."""
    found = typed(value, key, list)
    if not all(isinstance(each, str) for each in found):
        raise ValueError(f"{key}: expected text, got {found!r}")
    return tuple(found)


def position_value(position: Position) -> Any:
    """A position as values of JSON."""
    return json.loads(position.to_json())


def position_of(value: Any) -> Position:
    """Read what `position_value` made.

    Raises:
        ValueError: It is no position.
    """
    return Position.from_json(json.dumps(value))


def to_bytes(value: Mapping[str, Any]) -> bytes:
    """Canonical JSON: equal values are equal bytes."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
