"""Create tables in a catalog of pypaimon, commit rows to them, and read them in one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory, Schema

from pypaimon.streaming import StreamReadBuilder, StreamWriteBuilder, stream_write_builder
from pypaimon.streaming.paimon.internals import DataFileMeta
from support.tables.kept_commits import commit_once

EVOLUTION = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
"""Options of a table with row ids whose columns may be written by themselves."""

Write = Callable[..., None]
"""`write_by_pypaimon` or `write_by_stream`."""


def catalog_with_database(warehouse: Any, database: str = "db", catalog: Any = None) -> Any:
    """A catalog over a directory, or the one that is given, with a database."""
    catalog = catalog or CatalogFactory.create({"warehouse": str(warehouse)})
    catalog.create_database(database, True)
    return catalog


def create_table(catalog: Any, name: str, columns: pa.Schema, *, database: str = "db", **arguments: Any) -> Any:
    """Create a table in a database and return its handle.

    Args:
        name: The table's name without its database.
        arguments: `primary_keys`, `partition_keys` and `options`, as pypaimon's `Schema` takes them.
    """
    full_name = f"{database}.{name}"
    catalog.create_table(full_name, Schema.from_pyarrow_schema(columns, **arguments), False)
    return catalog.get_table(full_name)


def option_names(options: dict[str, str]) -> dict[str, str]:
    """Table options by their real names: in keyword arguments `__` stands for a dot and `_` for a hyphen."""
    return {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}


def write_by_pypaimon(handle: Any, *files: pa.Table, overwrite: bool = False) -> None:
    """Make one commit with pypaimon's batch writer. Each argument is written to files of its own."""
    commit_once(handle, files, overwrite, lambda: _commit(handle, files, overwrite))


def _commit(handle: Any, files: Sequence[pa.Table], overwrite: bool) -> None:
    builder = handle.new_batch_write_builder()
    if overwrite:
        builder = builder.overwrite()
    messages = []
    for rows in files:
        writer = builder.new_write()
        writer.write_arrow(rows)
        messages += writer.prepare_commit()
        writer.close()
    commit = builder.new_commit()
    commit.commit(messages)
    commit.close()


def write_by_stream(handle: Any, *parts: pa.Table, overwrite: bool = False) -> None:
    """Make one commit with the stream writer of this library."""
    builder = stream_write_builder(handle)
    write_with(builder.with_overwrite() if overwrite else builder, *parts)


def write_with(builder: StreamWriteBuilder, *parts: Any) -> None:
    """Make one commit with a writer of this library that opens for it."""
    with builder.open_sync() as writer:
        for rows in parts:
            writer.write(rows)
        writer.commit()


def read_with(builder: StreamReadBuilder) -> list[dict[str, Any]]:
    """The rows of a stream that ends, by column name."""
    with builder.open_sync() as stream:
        return [row for batch in stream for row in batch.data.to_pylist()]


def batch_table(handle: Any, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of the latest snapshot, read by pypaimon in one batch."""
    builder = handle.new_read_builder()
    if columns is not None:
        builder = builder.with_projection(list(columns))
    return builder.new_read().to_arrow(builder.new_scan().plan().splits())


def batch_read(handle: Any, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The rows of `batch_table` by column name."""
    rows: list[dict[str, Any]] = batch_table(handle, columns).to_pylist()
    return rows


def sorted_rows(handle: Any, columns: Sequence[str] | None = None) -> list[tuple[Any, ...]]:
    """The rows of `batch_table` as tuples, in an order that does not depend on files."""
    return sorted((tuple(row.values()) for row in batch_read(handle, columns)), key=str)


def current_files(handle: Any) -> list[DataFileMeta]:
    """The files of the latest snapshot, as pypaimon plans them."""
    return [file for split in handle.new_read_builder().new_scan().plan().splits() for file in split.files]
