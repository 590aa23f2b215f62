"""Why a table cannot be loaded: what is missing, who refuses, and whether trying again may help."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlsplit

from pypaimon.streaming.cli.contact import Endpoint
from pypaimon.streaming.errors import CorruptTableError, PaimonStreamError, StoreError
from pypaimon.streaming.internals import TableNotExistException
from pypaimon.streaming.io.request_errors import translated

_MOST_NAMES = 10


class NotLoadedError(PaimonStreamError):
    """The table is not there, or may not be read."""


@contextmanager
def naming_causes(catalog: Any, options: Mapping[str, str], name: str) -> Iterator[None]:
    """Turn what pypaimon raises for a table into what is the matter.

    Args:
        catalog: Of pypaimon.
        options: Of that catalog.
        name: Of the table.

    Raises:
        NotLoadedError: The bucket, the warehouse, the database or the table is missing, or may not be read.
        StoreError: The store failed in a way that may pass.
    """
    try:
        yield
    except TableNotExistException as error:
        raise NotLoadedError(f"table {name} does not exist{_what_is_missing(catalog, options, name)}") from error
    except (OSError, RuntimeError) as error:
        cause = _os_error(error)
        if cause is None:
            raise
        found = translated(name, cause)
        if isinstance(found, CorruptTableError):
            raise NotLoadedError(f"{Endpoint.of(options)} refuses: {cause}{_credentials(options)}") from error
        if isinstance(found, StoreError):
            raise StoreError(f"{Endpoint.of(options)} failed: {cause}") from error
        raise


def _os_error(error: BaseException | None) -> OSError | None:
    """The error of the store that another one was made of."""
    while error is not None:
        if isinstance(error, OSError):
            return error
        error = error.__cause__
    return None


def _credentials(options: Mapping[str, str]) -> str:
    if any("access" in key and "key" in key for key in options) or "AWS_ACCESS_KEY_ID" in os.environ:
        return "; check the credentials and their permissions"
    return "; no credentials were given: neither s3.access-key and s3.secret-key nor AWS_ACCESS_KEY_ID"


def _what_is_missing(catalog: Any, options: Mapping[str, str], name: str) -> str:
    """The first part of a table's path that is not there, and what is there in its place."""
    warehouse = options.get("warehouse", "")
    database, _, table = name.partition(".")
    try:
        if options.get("metastore", "filesystem") == "filesystem" and not catalog.file_io.exists(warehouse):
            parts = urlsplit(warehouse)
            bucket = f"{parts.scheme}://{parts.netloc}"
            if parts.netloc and not catalog.file_io.exists(bucket):
                return f": there is no bucket {bucket}"
            return f": there is no warehouse {warehouse}"
        databases = catalog.list_databases()
        if database not in databases:
            return f": there is no database {database}; the warehouse {_there_is(database, databases)}"
        return f"; {database} {_there_is(table, catalog.list_tables(database))}"
    except Exception:  # noqa: BLE001 - that it is missing is known; the rest is help
        return ""


def _there_is(wanted: str, names: Iterable[str]) -> str:
    found = sorted(names)
    if not found:
        return "holds nothing"
    near = get_close_matches(wanted, found, n=1)
    if near:
        return f"has {near[0]}"
    more = "" if len(found) <= _MOST_NAMES else f" and {len(found) - _MOST_NAMES} more"
    return f"has {', '.join(found[:_MOST_NAMES])}{more}"
