"""`maintain`: maintains tables in the tasks of a Spark session."""

from __future__ import annotations

import fnmatch
import pickle
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pypaimon.spark.errors import ErrorContext, readable_errors
from pypaimon.spark.options.sink_options import SinkOptions, parse_sink
from pypaimon.spark.write.sink_table import load_sink_table
from pypaimon.streaming.databases.tables_of_database import TablesOfDatabase
from pypaimon.streaming.errors import TablesFailedError
from pypaimon.streaming.lazy_imports import LazyModule
from pypaimon.streaming.maintenance.plan import MaintenanceReport
from pypaimon.streaming.maintenance.policy import MaintenancePolicy
from pypaimon.streaming.paimon.catalogs import CatalogFactory
from pypaimon.streaming.table_maintenance import maintain as maintain_table

if TYPE_CHECKING:
    from pyspark import sql
else:
    sql = LazyModule("pyspark.sql")


def maintain(
    spark: sql.SparkSession,
    options: Mapping[str, str],
    policy: MaintenancePolicy | None = None,
    *,
    dry_run: bool = False,
) -> list[MaintenanceReport]:
    """Maintain a table on the driver, or several tables in one task for each. Blocks.

    Policy and reports are those of `pypaimon.streaming.maintain`.

    Args:
        spark: The session, classic or Spark Connect. Its executors need this package.
        options: Those of the sink: `table` and `warehouse`, or `path`; options of the table are laid over it. A
            `table` such as `db.orders_*` names all tables that it matches.
        policy: What to keep; None: what the options of each table say.
        dry_run: Delete nothing. The reports say what would be deleted.

    Returns:
        The report of each table, by name.

    Raises:
        StreamConfigError: An option or the policy cannot be read; nothing was deleted.
        CorruptTableError: A file that decides what is needed is damaged or missing; nothing was deleted.
        TablesFailedError: Some of several tables failed. The others have been maintained.
        MaintenanceConflictError: Others kept changing what is protected meanwhile (retriable).
        StoreError: The store failed (retriable).
    """
    with readable_errors(ErrorContext.of(options)):
        parsed = parse_sink({key.lower(): value for key, value in options.items()})
        task = _MaintenanceTask(parsed, policy, dry_run)
        database, _, glob = (parsed.table or "").partition(".")
        if not re.search(r"[*?\[]", glob):
            return [maintain_table(load_sink_table(parsed).handle, policy, dry_run=dry_run)]
        catalog = CatalogFactory.create(dict(parsed.catalog))
        names = sorted(TablesOfDatabase(catalog, database, re.compile(fnmatch.translate(glob))).names())
        if not names:
            return []
        tables = spark.createDataFrame([(f"{database}.{name}",) for name in names], "name string")
        rows = tables.repartition(len(names)).mapInArrow(task, "name string, outcome binary").collect()
        found = {row.name: pickle.loads(bytes(row.outcome)) for row in rows}
        if errors := {name: each for name, each in found.items() if isinstance(each, Exception)}:
            raise TablesFailedError(errors, "maintained")
        return [found[name] for name in sorted(found)]


@dataclass(frozen=True)
class _MaintenanceTask:
    """Maintains the tables that one task is given. An error is an outcome, so that it does not end other tasks."""

    options: SinkOptions
    policy: MaintenancePolicy | None
    dry_run: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for name in batch["name"].to_pylist():
                outcome = pa.array([pickle.dumps(self._outcome(name))], pa.binary())
                yield pa.RecordBatch.from_arrays([pa.array([name]), outcome], names=["name", "outcome"])

    def _outcome(self, name: str) -> Any:
        try:
            table = load_sink_table(replace(self.options, table=name))
            return maintain_table(table.handle, self.policy, dry_run=self.dry_run)
        except Exception as error:  # noqa: BLE001 - the driver raises it
            return error
