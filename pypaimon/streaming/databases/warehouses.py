"""The warehouse of a database, so that a copy does not continue with a database of the same name elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from pypaimon.streaming.databases.position import DatabasePosition
from pypaimon.streaming.databases.tables_of_database import translating
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.paimon.internals import TableNotExistException


def warehouse_of(catalog: Any) -> str | None:
    """The warehouse of a catalog, with the address of its server if any, without passwords; None if unknown."""
    warehouse = getattr(catalog, "warehouse", None)
    if not isinstance(warehouse, str):
        return None
    # One directory has several spellings: /x, file:/x, file:///x/, or a link to it.
    place = re.sub(r"^file:(//)?(?=/)", "", warehouse).rstrip("/")
    if "://" not in place and os.path.isdir(place):
        place = os.path.realpath(place)
    context = getattr(catalog, "context", None)
    uri = None if context is None else context.options.to_map().get("uri")
    return re.sub(r"//[^/@]*@", "//", f"{uri} {place}" if uri else place)


def noted_location(noted: Sequence[str], location: str | None) -> str | None:
    """The warehouse to report for copies that record these warehouses: the given one if it is among them."""
    return location if location in noted else next(iter(noted), None)


def refuse_another_warehouse(catalog: Any, held: DatabasePosition, location: str | None) -> None:
    """Check that a copy was not made from a database of the same name in another warehouse.

    A warehouse may be moved: then its tables still have the same identities.

    Raises:
        StreamConfigError: The copy was made from another warehouse.
    """
    if None in (held.location, location) or held.location == location or not held.tables:
        return
    identities = (_identity(catalog, f"{held.database}.{name}") for name in held.tables)
    if any(found == place.identity for found, place in zip(identities, held.tables.values(), strict=True)):
        return
    raise StreamConfigError(
        f"the target holds a copy of database '{held.database}' of warehouse {held.location}, but this database is in "
        f"{location} and has different tables: copy each into a schema or database of its own. To replace the copy, "
        "drop its tables first."
    )


def _identity(catalog: Any, name: str) -> str | None:
    try:
        with translating(name):
            return TableDirectory.of(catalog.get_table(name)).identity
    except (TableNotExistException, FileNotFoundError):
        return None
