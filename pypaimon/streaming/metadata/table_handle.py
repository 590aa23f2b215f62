"""`TableHandle`: the part of pypaimon's table that a stream needs, made from its path, schema and options.

pypaimon's own table imports its readers, writers and catalogs, which costs a process more than planning a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.paimon.internals import CoreOptions, Identifier, Options, TableSchema

_DIRECTORY = option_keys.DATA_FILE_PATH_DIRECTORY.name


@dataclass(frozen=True, slots=True)
class FilesOnly:
    """pypaimon's catalog environment for a table that is known only from its files."""

    identifier: Identifier
    # Options of the file system catalog; None: the table was found by its path
    catalog: Mapping[str, str] | None = field(default=None, repr=False)

    @property
    def uuid(self) -> None:
        """The catalog gives its tables no id."""

    @property
    def catalog_loader(self) -> Any:
        """The loader of the catalog; None without one."""
        if self.catalog is None:
            return None
        from pypaimon.streaming.paimon.read_internals import CatalogContext, FileSystemCatalogLoader

        return FileSystemCatalogLoader(CatalogContext.create_from_options(Options(dict(self.catalog))))

    def snapshot_loader(self) -> None:
        """The catalog does not know the latest snapshot."""

    def table_query_auth(self, options: CoreOptions, identifier: Identifier) -> Any:
        """The function that requests the catalog's rules, which it refuses; None if the table does not enable them."""
        asks = self.catalog is not None and options.query_auth_enabled
        return partial(self._ask_for_rules, identifier) if asks else None

    def _ask_for_rules(self, identifier: Identifier, columns: list[str]) -> Any:
        return self.catalog_loader.load().auth_table_query(identifier, columns)


class TableHandle:
    """A table in a file system. Attributes and methods are those of pypaimon's `FileStoreTable`. `applied` are the
    options that copies have added to those of the table; a value of None removes an option.
    """

    def __init__(
        self,
        file_io: Any,
        table_path: str,
        table_schema: TableSchema,
        catalog_environment: FilesOnly,
        applied: Mapping[str, str | None] | None = None,
        newest: TableSchema | None = None,
        latest: Snapshot | None = None,
    ) -> None:
        self.file_io = file_io
        self.identifier = catalog_environment.identifier
        self.table_path = table_path
        self.table_schema = table_schema
        # The latest schema when the handle was found, without options of copies; None if it was not requested for this
        # branch
        self.newest = newest
        self.latest = latest
        self.catalog_environment = catalog_environment
        self.options = CoreOptions(Options(table_schema.options))
        self._applied_dynamic_options = dict(applied or {})

    @staticmethod
    def found(
        file_io: Any,
        table_path: str,
        catalog_environment: FilesOnly,
        *,
        with_latest: bool = False,
        prepare: Callable[[TableHandle], object] | None = None,
    ) -> TableHandle | None:
        """The table in a directory, or None. Two requests, and three more with the latest snapshot."""
        unknown = TableSchema(TableSchema.CURRENT_VERSION, 0, [], 0, [], [], {})
        handle = TableHandle(file_io, table_path, unknown, catalog_environment)
        if prepare is not None:
            prepare(handle)
        directory = TableDirectory.of(handle)
        try:
            if not with_latest:
                newest, latest = directory.latest_schema(), None
            else:
                newest, latest = directory.latest_schema_and_snapshot()
        except FileNotFoundError:
            return None
        found = TableHandle(file_io, table_path, newest, catalog_environment, newest=newest, latest=latest)
        TableDirectory.pass_on(handle, found)
        return found

    def current_branch(self) -> str:
        return str(self.identifier.get_branch_name_or_default())

    def copy_without_time_travel(self, options: Mapping[str, str | None]) -> TableHandle:
        """The same table with other options. Raises ValueError if an option cannot be changed."""
        old = self.options
        if _DIRECTORY in options and options[_DIRECTORY] != old.data_file_path_directory():
            raise ValueError(f"Cannot change immutable option {_DIRECTORY}")
        bucket, branch = option_keys.BUCKET.name, option_keys.BRANCH.name
        if bucket in options and int(options[bucket] or 0) != old.bucket():
            raise ValueError("Cannot change bucket number")
        merged = {**old.options.to_map(), **options}
        schema = self.table_schema.copy(new_options={key: text for key, text in merged.items() if text is not None})
        environment, names, newest = self.catalog_environment, self.identifier, self.newest
        if branch in options:
            names = Identifier.create(names.get_database_name(), names.get_table_name(), branch=options[branch])
            environment, newest = replace(environment, identifier=names), None
        applied = {**self._applied_dynamic_options, **options}
        return TableHandle(self.file_io, self.table_path, schema, environment, applied, newest)
