"""For Dagster: an IO manager that keeps assets in Paimon tables. Sensors need nothing but `new_snapshots`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import polars

from pypaimon.streaming.catalog_access import open_table
from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.lazy_imports import naming_extra
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.options.option_keys import CHANGELOG_PRODUCER, DYNAMIC_PARTITION_OVERWRITE
from pypaimon.streaming.read_builder import stream_read_builder
from pypaimon.streaming.spec.streamed_table import without_consumer
from pypaimon.streaming.writing.builder import stream_write_builder

with naming_extra(__name__, {"dagster": "dagster"}):
    import dagster


class PaimonIOManager(dagster.ConfigurableIOManager):
    """Keeps the value of each asset in the table `DATABASE.ASSET`, which exists already.

    A value is what writers take: a table or reader of Arrow, or a frame of pandas or polars. A materialization replaces
    the rows of the table in one commit, so a retry repeats nothing. Assets downstream get an Arrow table with the rows
    of the latest snapshot, or a frame if their argument is annotated as one of pandas or polars.

    Attributes:
        options: Options of the catalog, as `open_table` takes them.
        database: The database of the tables; assets with a key prefix have its last part instead.
    """

    options: dict[str, str]
    database: str = "default"

    def handle_output(self, context: dagster.OutputContext, obj: Any) -> None:
        """Replace the rows of the asset's table."""
        if obj is None:
            return
        if context.has_asset_partitions:
            raise dagster.DagsterInvariantViolationError(
                f"{context.asset_key.to_user_string()}: PaimonIOManager replaces whole tables: write a partition with "
                "stream_write_builder(table).with_overwrite({column: value}) in an asset that returns None"
            )
        with _failures(), stream_write_builder(self._table(context)).with_overwrite().open_sync() as writer:
            writer.write(obj)
            report = writer.commit()
        context.add_output_metadata({"paimon/snapshot": report.snapshot_id, "paimon/rows": report.written.rows})

    def load_input(self, context: dagster.InputContext) -> Any:
        """The rows of the latest snapshot."""
        library = getattr(context.dagster_type.typing_type, "__module__", "").partition(".")[0]
        with _failures():
            # Streams of tables with a complete changelog begin with the compacted rows only, and raw ones also read the
            # state of tables whose changes cannot be streamed.
            table = without_consumer(self._table(context).copy({CHANGELOG_PRODUCER.name: "none"}))
            builder = stream_read_builder(table).with_raw(True).with_start("latest-full").with_end("latest")
            with builder.open_sync() as stream:
                rows = stream.to_arrow()
        if ROW_KIND in rows.column_names:  # of a state it says nothing
            rows = rows.drop_columns([ROW_KIND])
        if library == "pandas":
            return rows.to_pandas()
        return polars.from_arrow(rows) if library == "polars" else rows

    def _table(self, context: Any) -> Any:
        *prefix, name = context.asset_key.path
        database = prefix[-1] if prefix else self.database
        # Also of a partitioned table every commit replaces all rows.
        return open_table(f"{database}.{name}", self.options).copy({DYNAMIC_PARTITION_OVERWRITE.name: "false"})


@contextmanager
def _failures() -> Iterator[None]:
    """Errors that no retry heals, as Dagster has them."""
    try:
        yield
    except PaimonStreamError as error:
        if error.retriable:
            raise
        raise dagster.Failure(str(error), allow_retries=False) from error
