"""`IndexOptions`: which columns of a table have file indexes, and which of these are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.writing.indexes.keys import BOOLEAN, BYTES, MOMENTS, NUMBERS, TEXTS, kind_of

_LOG = StreamLog(__name__)

_PREFIX, _COLUMNS = "file-index.", ".columns"
_EMBEDDED_BYTES = 500
_WRITTEN = {
    "bloom-filter": NUMBERS | MOMENTS | TEXTS | BYTES,
    "bitmap": NUMBERS | MOMENTS | TEXTS | BOOLEAN,
}
"""Types of columns that Java has in these indexes."""


@dataclass(frozen=True, slots=True)
class IndexedColumn:
    """One index of one column.

    Attributes:
        column: The column, or `map[key]` for the values of a key.
        kind: `bloom-filter` and so on.
        options: Its own options, by their last word.
    """

    column: str
    kind: str
    options: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.kind} of {self.column}"


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """The file indexes of a table (`file-index.<kind>.columns`).

    Attributes:
        written: Those that are written here.
        unwritten: The other ones.
        embedded_bytes: Up to how many bytes they lie in the manifest, instead of beside their file.
    """

    written: tuple[IndexedColumn, ...]
    unwritten: tuple[IndexedColumn, ...]
    embedded_bytes: int

    @staticmethod
    def of(table: Any) -> IndexOptions:
        """What the options of a table say.

        Raises:
            StreamConfigError: One of them cannot be read.
        """
        raw = table.options.options.to_map()
        kinds = {field.name: kind_of(field.type) for field in table.fields}
        found = _indexed(raw)
        written = tuple(each for each in found if kinds.get(each.column) in _WRITTEN.get(each.kind, ()))
        embedded = OptionValues(raw).size_bytes("file-index.in-manifest-threshold", _EMBEDDED_BYTES)
        return IndexOptions(written, tuple(each for each in found if each not in written), embedded)


def tell_of_unwritten(table: Any, name: str) -> None:
    """Log that indexes of a table are not written; to be called once for each writer.

    Args:
        table: pypaimon's table.
        name: Its name.
    """
    unwritten = IndexOptions.of(table).unwritten
    if unwritten:
        text = "file indexes of %(table)s are not written (%(indexes)s): reads stay right, and skip fewer files"
        _LOG.warning("indexes_not_written", text, table=name, indexes=", ".join(map(str, unwritten)))


def _indexed(raw: Mapping[str, str]) -> list[IndexedColumn]:
    found = []
    for key, value in raw.items():
        if key.startswith(_PREFIX) and key.endswith(_COLUMNS):
            kind = key[len(_PREFIX) : -len(_COLUMNS)]
            for column in filter(None, (each.strip() for each in value.split(","))):
                own = f"{_PREFIX}{kind}.{column.partition('[')[0]}."
                options = {name[len(own) :]: each for name, each in raw.items() if name.startswith(own)}
                found.append(IndexedColumn(column, kind, options))
    return found
