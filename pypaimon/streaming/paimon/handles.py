"""What this package uses of pypaimon's tables, which have no types: protocols for type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from pypaimon.streaming.paimon.internals import CoreOptions, DataField, Identifier, TableSchema

T = TypeVar("T")
R = TypeVar("R", bound="ReadableTable")


class ReadableTable(Protocol):
    """A table of pypaimon, as `catalog.get_table(...)` returns it, with what streams use of it."""

    identifier: Identifier
    table_path: str
    table_schema: TableSchema
    options: CoreOptions
    file_io: Any
    catalog_environment: Any

    def current_branch(self) -> str: ...

    def copy_without_time_travel(self: T, options: dict[str, Any]) -> T: ...


class WritableTable(ReadableTable, Protocol):
    """A table of pypaimon, as `catalog.get_table(...)` returns it, with what writers use of it."""

    fields: list[DataField]
    partition_keys: list[str]
    partition_keys_fields: list[DataField]
    primary_keys: list[str]
    trimmed_primary_keys: list[str]
    trimmed_primary_keys_fields: list[DataField]
    is_primary_key_table: bool
    total_buckets: int

    def branch_manager(self) -> Any: ...

    def bucket_mode(self) -> Any: ...

    def copy(self: T, options: dict[str, Any]) -> T: ...

    def new_snapshot_commit(self) -> Any: ...

    def path_factory(self) -> Any: ...

    def new_batch_write_builder(self) -> Any: ...


def dynamic_options(table: ReadableTable) -> dict[str, Any]:
    """The options that `table.copy({...})` has added, over all copies; None for an option that was removed."""
    return dict(getattr(table, "_applied_dynamic_options", {}))


def on_branch(table: R, branch: str) -> R:
    """A handle of another branch of a table, with the same dynamic options. Its schema is still that of this branch."""
    return table.copy_without_time_travel({"branch": branch})
