"""Which keys `--table-option` takes: those that a reader of Paimon knows. A misspelled one would mean nothing."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

import click

from pypaimon.streaming.internals import ConfigOption, CoreOptions
from pypaimon.streaming.model.time_zone import TIME_ZONE
from pypaimon.streaming.options.known_options import HEEDED_BY_READERS

_FAMILIES = ("fields.", "file-index.", "fs.")
_OF_PYPAIMON = {each.key() for each in vars(CoreOptions).values() if isinstance(each, ConfigOption)}
_KNOWN = _OF_PYPAIMON | HEEDED_BY_READERS | {TIME_ZONE}


def refuse_unknown(keys: Iterable[str]) -> None:
    """Let only known keys pass.

    Raises:
        click.UsageError: Names the key and the nearest known one.
    """
    for key in keys:
        if key not in _KNOWN and not key.startswith(_FAMILIES) and not _is_of_a_format(key):
            near = get_close_matches(key, _KNOWN, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise click.UsageError(f"--table-option: there is no option '{key}' that a reader knows.{hint}")


def _is_of_a_format(key: str) -> bool:
    # Late, because it imports the readers of all formats.
    from pypaimon.streaming.formats.registry import FORMATS

    return key.startswith(tuple(f"{name}." for name in FORMATS))
