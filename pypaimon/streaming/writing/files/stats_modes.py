"""`StatsModes`: what the metadata of a file tells of each column, by option `metadata.stats-mode` and its relatives."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.options.option_values import OptionValues

_TRUNCATE = re.compile(r"TRUNCATE\((\d+)\)")
_DEFAULT = "truncate(16)"


@dataclass(frozen=True, slots=True)
class StatsMode:
    """What is told of one column.

    Attributes:
        counts: Whether its nulls are counted.
        bounds: Whether its least and greatest value are told.
        length: Bounds of texts are cut to this many characters; None: they are told whole.
    """

    counts: bool
    bounds: bool
    length: int | None = None

    @staticmethod
    def parse(text: str, key: str) -> StatsMode:
        """A mode from its name.

        Raises:
            StreamConfigError: There is none of that name.
        """
        name = text.strip().upper()
        if name in ("NONE", "COUNTS", "FULL"):
            return StatsMode(name != "NONE", name == "FULL")
        found = _TRUNCATE.fullmatch(name)
        if found is None or int(found[1]) < 1:
            raise StreamConfigError(f"'{key}': expected none, counts, full or truncate(n) from 1, got {text!r}.")
        return StatsMode(True, True, int(found[1]))


NONE = StatsMode(False, False)
FULL = StatsMode(True, True)


@dataclass(frozen=True, slots=True)
class StatsModes:
    """What is told of all columns of a table.

    Attributes:
        modes: By column, in the order of the table.
        dense: Whether columns of which nothing is told are left out (`metadata.stats-dense-store`).
    """

    modes: dict[str, StatsMode]
    dense: bool

    @staticmethod
    def of(options: OptionValues, names: Sequence[str], general: str | None = None) -> StatsModes:
        """The modes that options say.

        Args:
            options: Options of the table.
            names: Its columns.
            general: The mode of all columns that have none of their own; None: that of the table.

        Raises:
            StreamConfigError: There is no such mode.
        """
        key = "metadata.stats-mode"
        mode = StatsMode.parse(general or options.text(key) or _DEFAULT, key)
        keep = options.integer("metadata.stats-keep-first-n-columns")
        modes = {}
        for position, name in enumerate(names):
            own_key = f"fields.{name}.stats-mode"
            own = options.text(own_key)
            if own is not None:
                modes[name] = StatsMode.parse(own, own_key)
            else:
                modes[name] = NONE if keep is not None and 0 <= keep <= position else mode
        return StatsModes(modes, options.boolean("metadata.stats-dense-store", True))
