"""`SinkOptions`: what `.option(...)` of a write may say, sorted into ours, the table's and the catalog's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pypaimon.spark.options.option_keys import OptionSchema, classify_options, require_table_location, separated_names
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.options.option_values import OptionValues

_OWN = (
    "table",
    "path",
    "row-kind-column",
    "case-sensitive",
    "merge-schema",
    "create-table",
    "primary-key",
    "partition-by",
    "assume-committed",
    "assume-missing",
    "query-id",
    "batch-id",
)
# Java's table options that pypaimon does not know: for a table that is created, or for its readers and compactors.
_JAVA_FAMILIES = (
    "changelog", "compact", "consumer.", "deletion-vectors.", "full-compaction.", "lookup", "num-", "partition.",
    "postpone.", "snapshot.", "tag.", "write-",
)  # fmt: skip
# Spark's own, which it hands on.
_SPARKS = ("checkpointlocation", "queryname", "outputmode")
_ALIASES = {
    "txnappid": "query-id",
    "txnversion": "batch-id",
    "write.merge-schema": "merge-schema",
}
_SCHEMA = OptionSchema(_OWN, aliases=_ALIASES, table_families=_JAVA_FAMILIES, ignored=_SPARKS)
_OF_CATALOG = (
    "Spark passes no options of a catalog table to a writer: INSERT INTO name WITH (warehouse = '...', table = "
    "'db.name') ..., or into a temporary view USING pypaimon."
)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of one sink. Holds secrets, so it is never shown.

    Attributes:
        catalog: Options of the catalog and its file systems.
        table_options: Options laid over the table's; those of a table that is created.
        table: `db.table`, with `$branch_<name>`; None if `path` says where it is.
        path: Directory of the table.
        row_kind_column: Column of row kinds, or None: `_row_kind`, if the table has no such column.
        case_sensitive: Whether names of columns must agree in case.
        merge_schema: Whether columns that the table lacks are added, and narrower types widened.
        create_table: Whether a missing table is created.
        primary_key: Of a table that is created.
        partition_by: Of a table that is created.
        assume_committed: Batch that is in the table though its snapshot is gone, or None.
        assume_missing: Batch that is not in the table though the snapshots that would show it are gone, or None.
        query_id: Of a batch write that is to happen once, or None.
        batch_id: Of a batch write that is to happen once, or None.
    """

    catalog: dict[str, str] = field(repr=False)
    table_options: dict[str, str] = field(repr=False)
    table: str | None = None
    path: str | None = None
    row_kind_column: str | None = None
    case_sensitive: bool = False
    merge_schema: bool = False
    create_table: bool = False
    primary_key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    assume_committed: int | None = None
    assume_missing: int | None = None
    query_id: str | None = None
    batch_id: int | None = None

    @property
    def name(self) -> str:
        """The table as messages call it."""
        return self.table or self.path or "the table"


def parse_sink(options: Mapping[str, str]) -> SinkOptions:
    """Read the options of a sink, whose keys Spark has lower-cased.

    Raises:
        StreamConfigError: An option is unknown, unreadable, missing or contradicts another.
    """
    given = classify_options(options, _SCHEMA)
    own = given.own
    require_table_location(own, given.catalog, "save(path)", _OF_CATALOG)
    values = OptionValues(own, strict=True)
    found = SinkOptions(
        catalog=given.catalog,
        table_options=given.table,
        table=own.get("table"),
        path=own.get("path"),
        row_kind_column=own.get("row-kind-column"),
        case_sensitive=values.boolean("case-sensitive", False),
        merge_schema=values.boolean("merge-schema", False),
        create_table=values.boolean("create-table", False),
        primary_key=separated_names(own, "primary-key") or (),
        partition_by=separated_names(own, "partition-by") or (),
        assume_committed=values.integer("assume-committed"),
        assume_missing=values.integer("assume-missing"),
        query_id=own.get("query-id"),
        batch_id=values.integer("batch-id", least=0),
    )
    _check(found)
    return found


def _check(options: SinkOptions) -> None:
    if options.create_table and options.table is None:
        raise StreamConfigError("Option 'create-table' needs 'table' and 'warehouse', for a catalog creates tables.")
    if not options.create_table and (options.primary_key or options.partition_by):
        raise StreamConfigError("Options 'primary-key' and 'partition-by' need 'create-table' = 'true'.")
    if (options.query_id is None) != (options.batch_id is None):
        raise StreamConfigError("Options 'query-id' and 'batch-id' go together: give both, or none.")
    if options.query_id is not None and (not options.query_id or not options.query_id.replace("-", "").isalnum()):
        raise StreamConfigError(f"Option 'query-id' = '{options.query_id}': letters, digits and '-' only.")
