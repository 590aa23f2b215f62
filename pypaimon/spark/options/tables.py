"""The table that options name, loaded through pypaimon's catalogs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.metadata.unreadable_types import naming_unreadable_types

if TYPE_CHECKING:
    from pypaimon.spark.options.sink_options import SinkOptions
    from pypaimon.spark.options.source_options import SourceOptions
    from pypaimon.streaming.options.views import View


def load_table(options: SourceOptions | SinkOptions) -> tuple[Any, View | None]:
    """The table, with the options laid over it, and the view of it that is named, as in `db.t$audit_log`.

    Raises:
        StreamConfigError: There is no such table, or the catalog cannot be made from the options.
        UnsupportedTableError: pypaimon does not know the type of a column.
    """
    name, view = _without_view(options.table)
    with naming_unreadable_types("the table"):
        table = _at_path(options) if name is None else _of_catalog(options, name)
    overlay = {key: value for key, value in options.table_options.items() if key not in ("scan.parallelism", "branch")}
    if overlay:
        try:
            # Not `copy`, which travels in time; where to start is for the stream to decide.
            table = table.copy_without_time_travel(overlay)
        except ValueError as error:
            raise StreamConfigError(f"Options of the table cannot be laid over it: {error}.") from error
    return table, view


def _without_view(name: str | None) -> tuple[str | None, View | None]:
    from pypaimon.streaming.options.views import VIEWS

    for view in VIEWS:
        if name is not None and name.endswith(f"${view}"):
            return name[: -len(view) - 1], view
    return name, None


def _of_catalog(options: SourceOptions | SinkOptions, name: str) -> Any:
    from pypaimon.catalog.catalog_exception import CatalogException
    from pypaimon.catalog.catalog_factory import CatalogFactory

    branch = options.table_options.get("branch")
    if branch is not None and "$branch_" not in name:
        name = f"{name}$branch_{branch}"
    try:
        return CatalogFactory.create(dict(options.catalog)).get_table(name)
    except CatalogException as error:
        where = options.catalog.get("warehouse") or options.catalog.get("uri")
        raise StreamConfigError(f"{error} in {where}. Correct option 'table' (or 'warehouse').") from error
    except ValueError as error:
        raise StreamConfigError(f"Table '{name}' cannot be loaded: {error}. Check 'table' and the catalog.") from error


def _at_path(options: SourceOptions | SinkOptions) -> Any:
    from pypaimon.table.file_store_table import FileStoreTable

    path = cast(str, options.path)
    try:
        return FileStoreTable.from_path(path.rstrip("/"), dict(options.catalog))
    except ValueError as error:
        raise StreamConfigError(f"There is no Paimon table at '{path}': {error}. Correct the path.") from error
