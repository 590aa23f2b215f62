"""Partitions as texts: `day=2026-11-21/hour=8`, with commas in options of tables, or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pypaimon.streaming.options import option_keys

_ANY_NAME = r"[^\s/,=]+"


def partition_text(values: Mapping[str, Any], null: str = option_keys.PARTITION_DEFAULT_NAME.default) -> str:
    """The values of a partition as `day=2026-11-21/hour=8`.

    Args:
        values: The values by column.
        null: The text of null: what the table's option `partition.default-name` says.
    """
    return "/".join(f"{name}={null if value is None else value}" for name, value in values.items())


def partition_values(text: str, columns: Sequence[str]) -> dict[str, Any]:
    """The values of a text, by column; the inverse of `partition_text`.

    A value may hold separators: in a text that names all columns, only a column's name after a separator ends a value.
    In one that names some, any name does, so that a misspelled column is not taken for a part of a value.

    Args:
        text: `day=2026-11-21/hour=8`, the same with a comma, or a JSON object.
        columns: The partition columns of the table.

    Raises:
        ValueError: The text has another form, or names a column twice; the message says what is expected.
    """
    if text.startswith("{"):
        found = json.loads(text)
        return dict(found)
    known = _split(text, "|".join(map(re.escape, sorted(columns, key=len, reverse=True)))) if columns else []
    names = [name for name, _ in known]
    if len({*names}) == len(names) == len(columns):
        return dict(known)
    pairs = _split(text, _ANY_NAME)
    names = names or [name for name, _ in pairs]
    if not pairs:
        raise ValueError("expected COLUMN=VALUE")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f'column {twice!r} is named twice; give a value with separators as JSON: {{"{twice}": ...}}')
    return dict(pairs)


def _split(text: str, names: str) -> list[tuple[str, str]]:
    """The pairs of a text, each of which begins with one of the names; none if the text does not begin with one."""
    found = list(re.finditer(rf"(?:^|[/,])\s*({names})\s*=", text))
    if not found or found[0].start():
        return []
    ends = [*(each.start() for each in found[1:]), len(text)]
    return [(each[1], text[each.end() : end]) for each, end in zip(found, ends, strict=True)]
