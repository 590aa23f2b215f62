"""`html_table`: what notebooks show of batches, settings and gauges: escaped, without secrets, and bounded in size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from itertools import islice
from typing import Any

MOST_ROWS, MOST_COLUMNS, MOST_CHARACTERS = 20, 20, 100


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], count: int | None = None) -> str:
    """A table of the first rows and columns.

    Args:
        count: The number of all rows, of which `rows` may hold the first ones; None: those of `rows`.
    """
    shown = [row[:MOST_COLUMNS] for row in islice(rows, MOST_ROWS)]
    left_out = (len(shown) if count is None else count) - len(shown), len(columns) - MOST_COLUMNS
    more = [f"{number} more {what}" for number, what in zip(left_out, ("rows", "columns"), strict=True) if number > 0]
    head = "".join(f"<th>{_cell(name)}</th>" for name in columns[:MOST_COLUMNS])
    body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in shown)
    end = f"<small>{', '.join(more)}</small>" if more else ""
    return f"<div><b>{_cell(title)}</b><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{end}</div>"


def html_fields(title: str, values: Mapping[str, Any]) -> str:
    """A table of names and values."""
    return html_table(title, ("", ""), list(values.items()))


def html_dataclass(title: str, value: Any, *, whole: bool = True) -> str:
    """A table of the fields of a dataclass; unless `whole`, of those that differ from their defaults."""
    found = {each.name: getattr(value, each.name) for each in fields(value) if whole or not _is_default(each, value)}
    return html_fields(title, found)


def _is_default(each: Any, value: Any) -> bool:
    default = each.default if each.default_factory is MISSING else each.default_factory()
    found = getattr(value, each.name)
    # Not all objects, such as expressions of pyarrow, can be compared with others.
    return found is default or (type(found) is type(default) and bool(found == default))


def _cell(value: Any) -> str:
    """The beginning of a value as text. Only that is escaped, so that a tag is never cut in two."""
    # Only notebooks need them.
    from html import escape

    from pypaimon.streaming.redaction import without_secrets

    text = value if isinstance(value, str) else "unknown" if value is None else str(value)
    # Secrets are looked for in more than is shown, because a cut one is not recognised.
    text = without_secrets(text[: 10 * MOST_CHARACTERS])
    return escape(text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…")
