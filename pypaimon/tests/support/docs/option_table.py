"""The tables of docs/options.md, from the registry of options. As a program it writes them into the page."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

from pypaimon.streaming.options.option_key import DURATION, SIZE, OptionKey, Use
from pypaimon.streaming.options.option_keys import OPTION_KEYS
from support.repository import ROOT

PAGE = ROOT / "docs" / "options.md"
_UNITS = {
    DURATION.name: ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms")),
    SIZE.name: ((1 << 20, "mb"), (1 << 10, "kb"), (1, "bytes")),
}
_PARTS = {Use.READ: "R", Use.WRITE: "W", Use.COMPACT: "C", Use.MAINTAIN: "M"}


def with_tables(page: str) -> str:
    """The page with the tables that the registry gives."""
    for name, table in (("options", _used()), ("left out options", _left_out()), ("ignored options", _ignored())):
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        pattern = f"{re.escape(begin)}.*?{re.escape(end)}"
        text = f"{begin}\n{table}\n{end}"
        page = re.sub(pattern, lambda _, text=text: text, page, flags=re.DOTALL)
    return page


def _used() -> str:
    by_rest: dict[tuple[str, str, str], list[str]] = {}
    for each in OPTION_KEYS:
        if each.use and each.meaning:
            by_rest.setdefault((_values(each), _parts(each), each.meaning), []).append(_names(each))
    rows = [f"| {', '.join(names)} | {' | '.join(rest)} |" for rest, names in by_rest.items()]
    return "\n".join(["| option | values (default) | for | here |", "|---|---|---|---|", *rows, ""])


def _left_out() -> str:
    by_advice: dict[str, list[str]] = {}
    for each in OPTION_KEYS:
        if each.left_out is not None and not each.meaning:
            by_advice.setdefault(each.left_out.instead, []).append(_names(each))
    rows = [f"| {', '.join(names)} | {advice} |" for advice, names in by_advice.items()]
    return "\n".join(["| option | instead |", "|---|---|", *rows, ""])


def _ignored() -> str:
    by_reason: dict[str, list[str]] = {}
    for each in OPTION_KEYS:
        if not each.use:
            by_reason.setdefault(each.meaning, []).append(_names(each))
    rows = [f"| {', '.join(names)} | {reason} |" for reason, names in by_reason.items()]
    return "\n".join(["| option | why |", "|---|---|", *rows, ""])


def _names(key: OptionKey[Any, Any]) -> str:
    also = ", ".join(f"`{each}`" for each in key.aliases)
    return f"`{key.name}`" + (f" (also {also})" if also else "")


def _values(key: OptionKey[Any, Any]) -> str:
    """The kind without its bounds, which an error names, and the default."""
    kind = key.kind.name.partition(" from ")[0]
    if key.default is None or key.default == "" or key.default is False:
        return kind
    return f"{kind} (`{_shown(key)}`)"


def _shown(key: OptionKey[Any, Any]) -> str:
    value = key.default
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return str(value).lower()
    units = _UNITS.get(key.kind.name.partition(" ")[0], ())
    return next((f"{value // size} {unit}" for size, unit in units if value and value % size == 0), str(value))


def _parts(key: OptionKey[Any, Any]) -> str:
    """The letters of its uses, and a star if writers here leave it out."""
    return "".join(name for part, name in _PARTS.items() if part & key.use) + "*" * (key.left_out is not None)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
