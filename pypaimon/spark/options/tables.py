"""The table that options name: pypaimon's own, or for a file system a handle, which needs fewer imports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pypaimon.spark.lean_imports  # noqa: F401
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.metadata.table_directory import naming_unreadable_types
from pypaimon.streaming.metadata.table_handle import FilesOnly, TableHandle
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.paimon.handles import ReadableTable
from pypaimon.streaming.paimon.internals import Identifier, new_file_io

if TYPE_CHECKING:
    from pypaimon.spark.options.sink_options import SinkOptions
    from pypaimon.spark.options.source_options import SourceOptions
    from pypaimon.streaming.options.read_scope import View

T = TypeVar("T", bound=ReadableTable)

_NOT_LAID_OVER = (option_keys.SCAN_PARALLELISM.name, option_keys.BRANCH.name)
_FALLBACK = option_keys.SCAN_FALLBACK_BRANCH.name


def load_table(options: SourceOptions | SinkOptions) -> tuple[Any, View | None]:
    """pypaimon's table, with the options laid over it, and the view of it that is named, as in `db.t$audit_log`.

    Raises:
        StreamConfigError: There is no such table, or the catalog cannot be made from the options.
        UnsupportedTableError: pypaimon does not know the type of a column.
    """
    name, view = _without_view(options.table)
    with naming_unreadable_types("the table"):
        table = _at_path(options) if name is None else _of_catalog(options, name)
    return _with_options(table, options), view


def load_stream_table(options: SourceOptions) -> tuple[Any, View | None]:
    """As `load_table`, with a `TableHandle` in the place of the table where that is in a file system."""
    name, view = _without_view(options.table)
    handle = _handle_at_path(options) if name is None else _handle_of_catalog(options, name)
    return load_table(options) if handle is None else (_with_options(handle, options), view)


def _with_options(table: T, options: SourceOptions | SinkOptions) -> T:
    overlay = {key: value for key, value in options.table_options.items() if key not in _NOT_LAID_OVER}
    if not overlay:
        return table
    try:
        # Not `copy`, which applies time travel; the stream decides where to start.
        return table.copy_without_time_travel(overlay)
    except ValueError as error:
        raise StreamConfigError(f"Options of the table cannot be laid over it: {error}.") from error


def _handle_of_catalog(options: SourceOptions, name: str) -> TableHandle | None:
    """A table of a file system catalog, found as pypaimon finds it; None for other catalogs, or if it is missing."""
    catalog = options.catalog
    if catalog.get("metastore", "filesystem") != "filesystem" or not catalog.get("warehouse") or _FALLBACK in catalog:
        return None
    try:
        identifier = Identifier.from_string(_on_branch(options, name))
        if identifier.is_system_table():
            return None
        database, table = identifier.get_database_name(), identifier.get_table_name()
    except ValueError:
        return None
    warehouse = catalog["warehouse"]
    path = f"{warehouse.rstrip('/')}/{database}.db/{table}"
    return _handle(warehouse, path, FilesOnly(identifier, catalog), catalog)


def _handle_at_path(options: SourceOptions) -> TableHandle | None:
    path = cast(str, options.path).rstrip("/")
    return _handle(path, path, FilesOnly(Identifier("default", "table")), options.catalog)


def _handle(root: str, path: str, environment: FilesOnly, catalog: Mapping[str, str]) -> TableHandle | None:
    """A table that is at `root`, or whose catalog is; None if there is no table."""
    file_io = new_file_io(root, catalog, of_catalog=environment.catalog is not None)
    return TableHandle.found(file_io, path, environment)


def _on_branch(options: SourceOptions | SinkOptions, name: str) -> str:
    branch = option_keys.BRANCH.of(options.table_options)
    return name if branch is None or "$branch_" in name else f"{name}$branch_{branch}"


def _without_view(name: str | None) -> tuple[str | None, View | None]:
    from pypaimon.streaming.options.read_scope import VIEWS

    for view in VIEWS:
        if name is not None and name.endswith(f"${view}"):
            return name[: -len(view) - 1], view
    return name, None


def _of_catalog(options: SourceOptions | SinkOptions, name: str) -> Any:
    from pypaimon.streaming.paimon.catalogs import CatalogException, CatalogFactory

    catalog = None
    try:
        catalog = CatalogFactory.create(dict(options.catalog))
        return catalog.get_table(_on_branch(options, name))
    except CatalogException as error:
        from pypaimon.streaming.catalog_access import what_is_missing

        where = options.catalog.get("warehouse") or options.catalog.get("uri")
        reason = "" if catalog is None else what_is_missing(catalog, options.catalog, name)
        raise StreamConfigError(f"{error} in {where}{reason}. Correct option 'table' (or 'warehouse').") from error
    except ValueError as error:
        raise StreamConfigError(f"Table '{name}' cannot be loaded: {error}. Check 'table' and the catalog.") from error


def _at_path(options: SourceOptions | SinkOptions) -> Any:
    from pypaimon.streaming.paimon.catalogs import FileStoreTable

    path = cast(str, options.path)
    try:
        return FileStoreTable.from_path(path.rstrip("/"), dict(options.catalog))
    except ValueError as error:
        raise StreamConfigError(f"There is no Paimon table at '{path}': {error}. Correct the path.") from error
