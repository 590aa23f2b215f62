"""Tables of keys and values without a column of row kinds, as the stream writers of this library fill them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from support.tables.streamed_table import KEYED, Table

KINDS = pa.schema([("_row_kind", pa.string()), *KEYED])


def key_value_table(
    warehouse: Path, name: str = "w", *, keyed: bool = True, catalog: Any = None, **options: str
) -> Table:
    """A table `db.<name>` of (k, v), with the primary key `k` and two buckets if it is keyed."""
    if keyed:
        return Table(warehouse, name, columns=KEYED, primary_keys=["k"], catalog=catalog, **{"bucket": "2", **options})
    return Table(warehouse, name, columns=KEYED, catalog=catalog, **options)


def rows(*keys: int, value: str = "v") -> pa.Table:
    return pa.table({"k": list(keys), "v": [f"{value}{key}" for key in keys]}, schema=KEYED)


def changes(*given: tuple[str, int, str]) -> pa.Table:
    kinds, keys, values = zip(*given, strict=True)
    return pa.table({"_row_kind": list(kinds), "k": list(keys), "v": list(values)}, schema=KINDS)
