"""`SourceOptions`: what `.option(...)` may say: ours, the table's and the catalog's; misspelled ones are refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pypaimon.spark.options.option_keys import OptionSchema, classify_options, require_table_location, separated_names
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.options.option_values import OptionValues

MODES = ("changelog", "rows", "files")
VERSION_KEYS = ("scan.tag-name", "scan.version")
"""Options of batches only. A read by one of them uses the schema of its snapshot, as Java's source in Spark does.

A stream may also begin at `scan.snapshot-id` or a time, and Spark does not say whether a stream or a batch asks for a
schema, so those use the latest one."""
_LIMITS = ("maxFilesPerTrigger", "maxBytesPerTrigger", "maxRowsPerTrigger", "minRowsPerTrigger", "maxTriggerDelayMs")
_PAIMON_PREFIX = "read.stream."
_OWN = (
    "table",
    "path",
    "mode",
    "start",
    "start.tag",
    "start.full",
    "columns",
    "filter",
    "blob-places",
    "unmatched",
    "raw",
    "include-row-kind",
    "include-snapshot-id",
    "include-ordinal",
    "failOnDataLoss",
    "on-overwrite",
    "read.changelog",
    *_LIMITS,
    *(_PAIMON_PREFIX + name for name in _LIMITS),
)
_HINTS = {
    "startingoffsets": "start",
    "startingposition": "start",
    "startingtimestamp": "scan.timestamp-millis",
    "startingversion": "scan.snapshot-id",
    "versionasof": "scan.version",
    "timestampasof": "scan.timestamp-millis",
    "endingoffsets": "scan.bounded.watermark",
    "readchangefeed": "mode",
    "ignorechanges": "on-overwrite",
    "ignoredeletes": "on-overwrite",
    "select": "columns",
    "where": "filter",
    "push-filters": "filter",
    "database": "table",
    "dbtable": "table",
}
_SCHEMA = OptionSchema(_OWN, _HINTS)
_OF_CATALOG = (
    "In SQL: CREATE TABLE name USING pypaimon OPTIONS (...), without columns: the options say where the table is."
)


@dataclass(frozen=True, slots=True)
class Admission:
    """Bounds of one micro-batch; None where not set.

    Attributes:
        max_files: Files.
        max_bytes: Bytes of files.
        max_rows: Physical rows.
        min_rows: Fewer rows wait for more, for at most `max_delay_millis`.
        max_delay_millis: Since the last batch with rows.
    """

    max_files: int | None = None
    max_bytes: int | None = None
    max_rows: int | None = None
    min_rows: int | None = None
    max_delay_millis: int | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one source. Holds secrets, so it is never shown.

    Words that the builder of streams takes are checked by it.

    Attributes:
        catalog: Options of the catalog and its file systems.
        table_options: Options laid over the table's, as `table.copy` takes them.
        table: `db.table`, with `$branch_<name>` or a view; None if `path` says where it is.
        path: Directory of the table.
        mode: One of `MODES`, or None: row kinds if the table can retract.
        include_row_kind: Whether `_row_kind` is a column; None: where the table can retract.
        include_snapshot_id: Whether `_snapshot_id` is a column.
        include_ordinal: Whether `_ordinal` is a column.
        start: A named start, or None: the table's options.
        start_tag: A tag to start from.
        start_full: Whether the tag's state comes first.
        columns: Projection, or None.
        filter: Text of a filter, or None.
        blob_places: Directories in which blobs may be, or None: the file system of the table.
        unmatched: What to do with records that a filter does not match.
        raw: Whether every merge engine is accepted.
        on_overwrite: What to do with OVERWRITE snapshots, or None.
        fail_on_data_loss: Whether an expired checkpoint stops the query.
        admission: Bounds of a micro-batch.
        version: The option that names the snapshot whose schema is read with, and its value, or None.
        parallelism: Tasks to aim at, or None: the machine's processors.
    """

    catalog: dict[str, str] = field(repr=False)
    table_options: dict[str, str] = field(repr=False)
    table: str | None = None
    path: str | None = None
    mode: str | None = None
    include_row_kind: bool | None = None
    include_snapshot_id: bool = False
    include_ordinal: bool = False
    start: Any = None
    start_tag: str | None = None
    start_full: bool = False
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    blob_places: tuple[str, ...] | None = None
    unmatched: Any = "delete"
    raw: bool = False
    on_overwrite: Any = None
    fail_on_data_loss: bool = True
    admission: Admission = field(default_factory=Admission)
    version: tuple[str, str] | None = None
    parallelism: int | None = None


def parse(options: Mapping[str, str]) -> SourceOptions:
    """Read the options of a source, whose keys Spark has lower-cased.

    Raises:
        StreamConfigError: An option is unknown, unreadable, missing or contradicts another.
    """
    given = classify_options(options, _SCHEMA)
    own, catalog, table_options = given.own, given.catalog, given.table
    require_table_location(own, catalog, "load(path)", _OF_CATALOG)
    values = OptionValues(own, strict=True)
    mode, include = _kinds(own, values)
    start, start_tag = own.get("start"), own.get("start.tag")
    if start is not None and start_tag is not None:
        raise StreamConfigError("Options 'start' and 'start.tag' are both set; give one of them.")
    parallelism = OptionValues(table_options).integer("scan.parallelism", least=1)
    return SourceOptions(
        catalog=catalog,
        table_options=table_options,
        table=own.get("table"),
        path=own.get("path"),
        mode=mode,
        include_row_kind=include,
        include_snapshot_id=values.boolean("include-snapshot-id", False),
        include_ordinal=values.boolean("include-ordinal", False),
        start=start,
        start_tag=start_tag,
        start_full=values.boolean("start.full", False),
        columns=separated_names(own, "columns"),
        filter=own.get("filter"),
        blob_places=separated_names(own, "blob-places"),
        unmatched=own.get("unmatched", "delete"),
        raw=values.boolean("raw", False),
        on_overwrite=own.get("on-overwrite"),
        fail_on_data_loss=values.boolean("failOnDataLoss", True),
        admission=_admission(own),
        version=next(((key, table_options[key]) for key in VERSION_KEYS if key in table_options), None),
        parallelism=parallelism,
    )


def _kinds(own: Mapping[str, str], values: OptionValues) -> tuple[str | None, bool | None]:
    """The mode, and whether the row kind is a column."""
    mode = own.get("mode")
    if mode is not None and mode not in MODES:
        raise StreamConfigError(f"Option 'mode' = '{mode}': choose one of {', '.join(MODES)}.")
    include = values.boolean("include-row-kind", False) if "include-row-kind" in own else None
    if "read.changelog" in own and values.boolean("read.changelog", False):
        mode = mode or "changelog"
    wanted = {"changelog": True, "rows": False}.get(mode or "")
    if wanted is not None and include is not None and include is not wanted:
        raise StreamConfigError(
            f"Options 'mode' = '{mode}' and 'include-row-kind' = '{own['include-row-kind']}' contradict each other."
        )
    if mode == "files" and (include or {"columns", "unmatched", "read.changelog"} & own.keys()):
        raise StreamConfigError(
            "Option 'mode' = 'files' hands out files, not rows: leave out 'columns', 'unmatched' and row kinds."
        )
    return mode, include if wanted is None else wanted


def _admission(own: Mapping[str, str]) -> Admission:
    found = {name: _limit(own, name) for name in _LIMITS}
    least, delay = found["minRowsPerTrigger"], found["maxTriggerDelayMs"]
    if (least is None) != (delay is None):
        raise StreamConfigError(
            "Can't provide only one of read.stream.minRowsPerTrigger and read.stream.maxTriggerDelayMs."
        )
    most = found["maxRowsPerTrigger"]
    if least is not None and most is not None and least > most:
        raise StreamConfigError(f"minRowsPerTrigger = {least} is more than maxRowsPerTrigger = {most}; swap them.")
    return Admission(found["maxFilesPerTrigger"], found["maxBytesPerTrigger"], most, least, delay)


def _limit(own: Mapping[str, str], name: str) -> int | None:
    both = {key: own[key] for key in (name, _PAIMON_PREFIX + name) if key in own}
    if not both:
        return None
    values = OptionValues(both)
    numbers = {key: values.size_bytes(key, 0) if "Bytes" in name else values.integer(key) for key in both}
    for key, number in numbers.items():
        if number is None or number < 1:
            raise StreamConfigError(f"Option '{key}' = '{both[key]}': give a number from 1.")
    if len(set(numbers.values())) > 1:
        raise StreamConfigError(
            f"Options {' and '.join(repr(key) for key in both)} are both set, and differ; give one."
        )
    return next(iter(numbers.values()))
