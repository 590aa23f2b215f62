"""`SourceOptions`: what `.option(...)` may say: ours, the table's and the catalog's; misspelled ones are refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pypaimon.spark.options.option_owners import (
    PATH,
    TABLE,
    OptionSchema,
    classify_options,
    require_table_location,
    separated_names,
)
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import SIZE, STRICT_BOOLEAN, TEXT, OptionKey, whole

MODES = ("changelog", "rows", "files")
VERSION_KEYS = (option_keys.SCAN_TAG_NAME, option_keys.SCAN_VERSION)
"""Options of batches only. A read by one of them uses the schema of its snapshot, as Java's source in Spark does.

A stream may also begin at `scan.snapshot-id` or a time, and Spark does not say whether a stream or a batch asks for a
schema, so those use the latest one."""
_MODE = OptionKey("mode", TEXT, None)
_START, _START_TAG = OptionKey("start", TEXT, None), OptionKey("start.tag", TEXT, None)
_START_FULL = OptionKey("start.full", STRICT_BOOLEAN, False)
_COLUMNS, _FILTER = OptionKey("columns", TEXT, None), OptionKey("filter", TEXT, None)
_BLOB_PLACES = OptionKey("blob-places", TEXT, None)
_UNMATCHED = OptionKey("unmatched", TEXT, "delete")
_RAW = OptionKey("raw", STRICT_BOOLEAN, False)
_INCLUDE_ROW_KIND = OptionKey("include-row-kind", STRICT_BOOLEAN, None)
_INCLUDE_SNAPSHOT_ID = OptionKey("include-snapshot-id", STRICT_BOOLEAN, False)
_INCLUDE_ORDINAL = OptionKey("include-ordinal", STRICT_BOOLEAN, False)
_FAIL_ON_DATA_LOSS = OptionKey("failOnDataLoss", STRICT_BOOLEAN, True)
_ON_OVERWRITE = OptionKey("on-overwrite", TEXT, None)
_READ_CHANGELOG = OptionKey("read.changelog", STRICT_BOOLEAN, False)
_MAX_FILES, _MAX_BYTES, _MAX_ROWS, _MIN_ROWS, _MAX_DELAY = (
    OptionKey(name, kind, None, aliases=(f"read.stream.{name}",))
    for name, kind in (
        ("maxFilesPerTrigger", whole()),
        ("maxBytesPerTrigger", SIZE),
        ("maxRowsPerTrigger", whole()),
        ("minRowsPerTrigger", whole()),
        ("maxTriggerDelayMs", whole()),
    )
)
_OWN = tuple(
    name for each in list(globals().values()) if isinstance(each, OptionKey) for name in (each.name, *each.aliases)
)
_HINTS = {
    "startingoffsets": _START.name,
    "startingposition": _START.name,
    "startingtimestamp": option_keys.SCAN_TIMESTAMP_MILLIS.name,
    "startingversion": option_keys.SCAN_SNAPSHOT_ID.name,
    "versionasof": option_keys.SCAN_VERSION.name,
    "timestampasof": option_keys.SCAN_TIMESTAMP_MILLIS.name,
    "endingoffsets": option_keys.SCAN_BOUNDED_WATERMARK.name,
    "readchangefeed": _MODE.name,
    "ignorechanges": _ON_OVERWRITE.name,
    "ignoredeletes": _ON_OVERWRITE.name,
    "select": _COLUMNS.name,
    "where": _FILTER.name,
    "push-filters": _FILTER.name,
    "database": TABLE.name,
    "dbtable": TABLE.name,
}
_SCHEMA = OptionSchema(_OWN, _HINTS)
_OF_CATALOG = (
    "In SQL: CREATE TABLE name USING pypaimon OPTIONS (...), without columns: the options say where the table is."
)


@dataclass(frozen=True, slots=True)
class Admission:
    """Bounds of one micro-batch; None where not set.

    Attributes:
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
    """The options of one source (docs/spark.md). Holds secrets, so it is never shown.

    Words that the builder of streams takes are checked by it.

    Attributes:
        table_options: Options laid over the table's, as `table.copy` takes them.
        table: `db.table`, with `$branch_<name>` or a view; None if `path` says where it is.
        mode: One of `MODES`, or None: row kinds if the table can retract.
        include_row_kind: Whether `_row_kind` is a column; None: where the table can retract.
        start: A named start, or None: the table's options.
        blob_places: Directories in which blobs may be, or None: the file system of the table.
        fail_on_data_loss: Whether an expired checkpoint stops the query.
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
    version: tuple[OptionKey[str, None], str] | None = None
    parallelism: int | None = None


def parse(options: Mapping[str, str]) -> SourceOptions:
    """Read the options of a source, whose keys Spark has lower-cased.

    Raises:
        StreamConfigError: An option is unknown, unreadable, missing or contradicts another.
    """
    given = classify_options(options, _SCHEMA)
    own, catalog, table_options = given.own, given.catalog, given.table
    require_table_location(own, catalog, "load(path)", _OF_CATALOG)
    mode, include = _kinds(own)
    start, start_tag = _START.of(own), _START_TAG.of(own)
    if start is not None and start_tag is not None:
        raise StreamConfigError("Options 'start' and 'start.tag' are both set; give one of them.")
    if _START_FULL.of(own) and start_tag is None:
        raise StreamConfigError("Option 'start.full' goes with 'start.tag': set it, or leave 'start.full' out.")
    if _UNMATCHED.set_as(own) and _FILTER.of(own) is None:
        raise StreamConfigError("Option 'unmatched' goes with 'filter': set it, or leave 'unmatched' out.")
    return SourceOptions(
        catalog=catalog,
        table_options=table_options,
        table=TABLE.of(own),
        path=PATH.of(own),
        mode=mode,
        include_row_kind=include,
        include_snapshot_id=_INCLUDE_SNAPSHOT_ID.of(own),
        include_ordinal=_INCLUDE_ORDINAL.of(own),
        start=start,
        start_tag=start_tag,
        start_full=_START_FULL.of(own),
        columns=separated_names(own, _COLUMNS),
        filter=_FILTER.of(own),
        blob_places=separated_names(own, _BLOB_PLACES),
        unmatched=_UNMATCHED.of(own),
        raw=_RAW.of(own),
        on_overwrite=_ON_OVERWRITE.of(own),
        fail_on_data_loss=_FAIL_ON_DATA_LOSS.of(own),
        admission=_admission(own),
        version=next(((key, text) for key in VERSION_KEYS if (text := key.of(table_options)) is not None), None),
        parallelism=option_keys.SCAN_PARALLELISM.of(table_options),
    )


def _kinds(own: Mapping[str, str]) -> tuple[str | None, bool | None]:
    """The mode, and whether the row kind is a column."""
    mode = _MODE.of(own)
    if mode is not None and mode not in MODES:
        raise StreamConfigError(f"Option 'mode' = '{mode}': choose one of {', '.join(MODES)}.")
    include = _INCLUDE_ROW_KIND.of(own)
    if _READ_CHANGELOG.of(own):
        mode = mode or "changelog"
    wanted = {"changelog": True, "rows": False}.get(mode or "")
    if wanted is not None and include is not None and include is not wanted:
        raise StreamConfigError(
            f"Options 'mode' = '{mode}' and 'include-row-kind' = '{_INCLUDE_ROW_KIND.text(own)}' contradict each other."
        )
    if mode == "files" and (include or any(each.set_as(own) for each in (_COLUMNS, _UNMATCHED, _READ_CHANGELOG))):
        raise StreamConfigError(
            "Option 'mode' = 'files' hands out files, not rows: leave out 'columns', 'unmatched' and row kinds."
        )
    return mode, include if wanted is None else wanted


def _admission(own: Mapping[str, str]) -> Admission:
    least, delay, most = _limit(own, _MIN_ROWS), _limit(own, _MAX_DELAY), _limit(own, _MAX_ROWS)
    if (least is None) != (delay is None):
        raise StreamConfigError(
            "Can't provide only one of read.stream.minRowsPerTrigger and read.stream.maxTriggerDelayMs."
        )
    if least is not None and most is not None and least > most:
        raise StreamConfigError(f"minRowsPerTrigger = {least} is more than maxRowsPerTrigger = {most}; swap them.")
    return Admission(_limit(own, _MAX_FILES), _limit(own, _MAX_BYTES), most, least, delay)


def _limit(own: Mapping[str, str], limit: OptionKey[int, None]) -> int | None:
    names = [name for name in (limit.name, *limit.aliases) if name in own]
    numbers = [limit.kind.read(name, own[name], own) for name in names]
    for name, number in zip(names, numbers, strict=True):
        if number < 1:
            raise StreamConfigError(f"Option '{name}' = '{own[name]}': give a number from 1.")
    if len(set(numbers)) > 1:
        raise StreamConfigError(f"Options {' and '.join(map(repr, names))} are both set, and differ; give one.")
    return numbers[0] if numbers else None
