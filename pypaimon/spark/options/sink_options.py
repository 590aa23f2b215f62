"""`SinkOptions`: what `.option(...)` of a write may say, sorted into ours, the table's and the catalog's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pypaimon.spark.options.option_owners import (
    PATH,
    TABLE,
    OptionSchema,
    classify_options,
    require_table_location,
    separated_names,
)
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.options.option_key import STRICT_BOOLEAN, TEXT, OptionKey, one_of, whole

_ROW_KIND_COLUMN = OptionKey("row-kind-column", TEXT, None)
_CASE_SENSITIVE = OptionKey("case-sensitive", STRICT_BOOLEAN, False)
_MERGE_SCHEMA = OptionKey("merge-schema", STRICT_BOOLEAN, False)
_CREATE_TABLE = OptionKey("create-table", STRICT_BOOLEAN, False)
_PRIMARY_KEY, _PARTITION_BY = OptionKey("primary-key", TEXT, None), OptionKey("partition-by", TEXT, None)
_ASSUME_COMMITTED = OptionKey("assume-committed", whole(), None)
_ASSUME_MISSING = OptionKey("assume-missing", whole(), None)
_MAINTAIN = OptionKey("maintain", one_of("off", "auto"), "off")
_QUERY_ID, _BATCH_ID = OptionKey("query-id", TEXT, None), OptionKey("batch-id", whole(0), None)
_OWN = tuple(each.name for each in list(globals().values()) if isinstance(each, OptionKey))
# Java's table options that pypaimon does not know: for a table that is created, or for its readers and compactors.
_JAVA_FAMILIES = (
    "changelog", "compact", "consumer.", "deletion-vectors.", "full-compaction.", "lookup", "num-", "partition.",
    "postpone.", "snapshot.", "tag.", "write-",
)  # fmt: skip
# Spark's own, which it hands on.
_SPARKS = ("checkpointlocation", "queryname", "outputmode")
_ALIASES = {
    "txnappid": _QUERY_ID.name,
    "txnversion": _BATCH_ID.name,
    "write.merge-schema": _MERGE_SCHEMA.name,
}
_SCHEMA = OptionSchema(_OWN, aliases=_ALIASES, table_families=_JAVA_FAMILIES, ignored=_SPARKS)
_OF_CATALOG = (
    "Spark passes no options of a catalog table to a writer: INSERT INTO name WITH (warehouse = '...', table = "
    "'db.name') ..., or into a temporary view USING pypaimon. CREATE TABLE ... AS SELECT: write the rows with option "
    "'create-table' = 'true' (df.write), then CREATE TABLE name USING pypaimon OPTIONS (...), without columns."
)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of one sink (docs/spark.md#write). Holds secrets, so it is never shown.

    Attributes:
        table_options: Options laid over the table's; those of a table that is created.
        table: `db.table`, with `$branch_<name>`; None if `path` says where it is.
        row_kind_column: Column of row kinds, or None: `_row_kind`, if the table has no such column.
        case_sensitive: Whether names of columns must agree in case.
        merge_schema: Whether columns that the table lacks are added, and narrower types widened.
        maintains: Whether commits are followed by maintenance.
        assume_committed: Batch that is in the table though its snapshot is gone, or None.
        assume_missing: Batch that is not in the table though the snapshots that would show it are gone, or None.
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
    maintains: bool = False
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
    found = SinkOptions(
        catalog=given.catalog,
        table_options=given.table,
        table=TABLE.of(own),
        path=PATH.of(own),
        row_kind_column=_ROW_KIND_COLUMN.of(own),
        case_sensitive=_CASE_SENSITIVE.of(own),
        merge_schema=_MERGE_SCHEMA.of(own),
        create_table=_CREATE_TABLE.of(own),
        primary_key=separated_names(own, _PRIMARY_KEY) or (),
        partition_by=separated_names(own, _PARTITION_BY) or (),
        maintains=_MAINTAIN.of(own) == "auto",
        assume_committed=_ASSUME_COMMITTED.of(own),
        assume_missing=_ASSUME_MISSING.of(own),
        query_id=_QUERY_ID.of(own),
        batch_id=_BATCH_ID.of(own),
    )
    _check(found)
    return found


def _check(options: SinkOptions) -> None:
    if options.create_table and options.table is None:
        raise StreamConfigError("Option 'create-table' needs 'table' and 'warehouse': a catalog creates tables.")
    if not options.create_table and (options.primary_key or options.partition_by):
        raise StreamConfigError("Options 'primary-key' and 'partition-by' need 'create-table' = 'true'.")
    if (options.query_id is None) != (options.batch_id is None):
        raise StreamConfigError("Options 'query-id' and 'batch-id' go together: give both, or none.")
    if options.query_id is not None and (not options.query_id or not options.query_id.replace("-", "").isalnum()):
        raise StreamConfigError(f"Option 'query-id' = '{options.query_id}': letters, digits and '-' only.")
