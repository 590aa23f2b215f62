"""`PaimonTable`: a table with types, made once from pypaimon's, which has none."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from pypaimon.streaming.metadata.file_paths import FilePaths
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.time_zone import TimeZone, zone_of
from pypaimon.streaming.options.option_key import TableOptions
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.paimon.handles import WritableTable
from pypaimon.streaming.paimon.internals import TableSchema


class PaimonTable:
    """One table and branch, under one schema and with the options of one handle. Never changes; makes no requests.

    Public functions take pypaimon's table and wrap it; everything below them takes this class, so that a type checker
    knows its attributes, and options are parsed once. Messages call it by `name`, or by its identifier.
    """

    def __init__(self, handle: WritableTable, name: str | None = None) -> None:
        self.handle = handle
        self.identifier = handle.identifier
        self._given_name = name
        self.name = str(handle.identifier.get_full_name()) if name is None else name
        self.path = str(handle.table_path)
        self.schema = handle.table_schema
        self.fields = handle.fields
        self.partition_keys = handle.partition_keys
        self.partition_fields = handle.partition_keys_fields
        self.primary_keys = handle.primary_keys
        # The primary key without the partition columns; empty without a primary key
        self.key_names = handle.trimmed_primary_keys
        self.key_fields = handle.trimmed_primary_keys_fields
        self.is_primary_key_table = bool(handle.is_primary_key_table)
        self.total_buckets = int(handle.total_buckets)

    @cached_property
    def options(self) -> TableOptions:
        """The options of the table and those that the handle adds: a read-only mapping."""
        return MappingProxyType(self.handle.options.options.to_map())

    @cached_property
    def traits(self) -> TableTraits:
        """The facts of the schema; raises if one of its options cannot be parsed."""
        return TableTraits.of(self.schema)

    @cached_property
    def paths(self) -> FilePaths:
        return FilePaths.of(self.path, self.schema)

    @cached_property
    def zone(self) -> TimeZone:
        """The time zone of writers; raises StreamConfigError if it is unknown."""
        return zone_of(self.options)

    @cached_property
    def bucket_mode(self) -> Any:
        """How rows find their buckets, a `BucketMode`."""
        return self.handle.bucket_mode()

    @property
    def file_io(self) -> Any:
        return self.handle.file_io

    @property
    def branch(self) -> str:
        return self.handle.current_branch() or "main"

    @property
    def is_managed_by_catalog(self) -> bool:
        """Whether a catalog commits and rolls back, as a REST catalog does, which counts the files of partitions."""
        environment = self.handle.catalog_environment
        return environment.catalog_loader is not None and bool(environment.supports_version_management)

    def new_directory(self) -> TableDirectory:
        """The files of the table. A new directory knows nothing yet, so it sees the table as it is now."""
        return TableDirectory.of(self.handle)

    def copy(self, options: Mapping[str, Any]) -> PaimonTable:
        """The same table with other options; None removes one. Raises ValueError if an option cannot be changed."""
        return PaimonTable(self.handle.copy_without_time_travel(dict(options)), self._given_name)

    def with_schema(self, schema: TableSchema) -> PaimonTable:
        from pypaimon.streaming.paimon.write_internals import FileStoreTable

        own = self.handle
        made = FileStoreTable(own.file_io, own.identifier, own.table_path, schema, own.catalog_environment)
        return PaimonTable(made, self._given_name)
