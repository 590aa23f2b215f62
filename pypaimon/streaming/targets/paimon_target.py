"""`PaimonTarget`: another Paimon table that follows a stream exactly once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import pyarrow as pa

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.files.casts import CastError, cast
from pypaimon.streaming.maintenance.commit_maintenance import When, is_automatic_maintenance
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.plan import PlanKind
from pypaimon.streaming.model.position import POSTPONE_BUCKET, Position
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.arguments import needed
from pypaimon.streaming.options.known_options import refuse_misspelled_keys
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.paimon.handles import ReadableTable, WritableTable
from pypaimon.streaming.paimon.internals import AtomicType, DataField, DataType, PyarrowFieldParser, TableSchema
from pypaimon.streaming.paimon.write_internals import Schema
from pypaimon.streaming.spec.copy_start import refuse_itself
from pypaimon.streaming.targets.changes import AnyBatch, TargetKeys, has_keyed_rows, inserts
from pypaimon.streaming.targets.column_evolution import is_wider, refuse_other_columns
from pypaimon.streaming.targets.plan_transactions import PlanTransactions, TransactionalTable, TransactionTarget
from pypaimon.streaming.targets.target_state import Saved, SavedState
from pypaimon.streaming.writing.pending_rows import WriterSettings
from pypaimon.streaming.writing.table_writer import TableWriter

COPIED_FROM = "pypaimon.copied-from"
"""Option of a table made by a copy of a database: which table it is a copy of, and its columns."""

_OF_THE_PLACE = ("path", "branch", "type", "provider", option_keys.ROWKIND_FIELD.name, COPIED_FROM)
_OF_READS = (
    "scan.", "consumer", "incremental-", "log.", option_keys.DATA_FILE_EXTERNAL_PATHS.name,
    # The directory may be outside of the table, and that of another one.
    option_keys.DATA_FILE_PATH_DIRECTORY.name,
)  # fmt: skip
# With these, batch readers see what compactions have made of the rows, and nobody may compact a copy.
_OF_COMPACTED_READS = ("deletion-vectors.", option_keys.PK_CLUSTERING_OVERRIDE.name)
_OF_MERGING = (
    option_keys.MERGE_ENGINE.name,
    "partial-update.",
    "aggregation.",
    "fields.",
    "ignore-",
    "deduplicate.",
    "first-row.",
    "sequence.",
    option_keys.CHANGELOG_PRODUCER.name,
    "full-compaction.",
    "lookup",
)


def copied_schema(schema: TableSchema, columns: Sequence[Any], changes: Mapping[str, str]) -> Schema:
    """The schema of a new table that can hold a copy of some columns of another one.

    It has the keys and options of the source, except for options of its location and of reads, and for those with which
    batch readers would see its rows only once they are compacted (deletion vectors, postponed buckets). If the stream
    of the source gives merged changes (producer `lookup` or `full-compaction`), the copy does not merge again: the
    newest row of a key counts, and the changes are its changelog.
    """
    if schema.primary_keys and not {*schema.partition_keys} <= {*schema.primary_keys}:
        raise StreamConfigError("keys of the source move between partitions, and such tables are not written here")
    options = {**_options(schema), **changes}
    refuse_misspelled_keys(options)
    return Schema(list(columns), list(schema.partition_keys), list(schema.primary_keys), options)


def refuse_merging(target: TableSchema, source: TableSchema, name: str) -> None:
    """Refuse a table with a primary key whose options would merge the changes to other rows than the source has.

    An option that the source has as well is allowed, unless its changes are merged already.
    """
    if not target.primary_keys:
        return
    found = _merging(target)
    if not _gives_merged_changes(source):
        found = {key: value for key, value in found.items() if _merging(source).get(key) != value}
    if found:
        shown = ", ".join(f"'{key}' = '{value}'" for key, value in found.items())
        raise StreamConfigError(
            f"{name} has {shown}, so that it would not hold the rows of the table that is copied. Copy to a table "
            "without it, as copy --create makes one. If others fill the same rows, give PaimonTarget shared=True, with "
            "which it need not be equal to its source."
        )


def _merging(schema: TableSchema) -> dict[str, str]:
    options, engine = schema.options, TableTraits.of(schema).merge_engine
    found = {} if engine.keeps_newest else {option_keys.MERGE_ENGINE.name: engine.value}
    for key in (option_keys.SEQUENCE_FIELD, option_keys.RECORD_LEVEL_EXPIRE_TIME):
        if value := key.text(options):
            found[key.name] = value
    ignoring = option_keys.IGNORE_DELETE.set_as(options)
    return found | {ignoring: "true"} if ignoring and option_keys.IGNORE_DELETE.of(options) else found


def _options(schema: TableSchema) -> dict[str, str]:
    given: Mapping[str, str] = schema.options
    is_merged = _gives_merged_changes(schema)
    left_out = (*_OF_READS, *_OF_MERGING) if is_merged else _OF_READS
    if schema.primary_keys:
        left_out = (*left_out, *_OF_COMPACTED_READS)
    options = {key: value for key, value in given.items() if key not in _OF_THE_PLACE and not key.startswith(left_out)}
    if option_keys.BUCKET.of(options) == POSTPONE_BUCKET:
        options[option_keys.BUCKET.name] = "-1"
        # As in Java, keys of dynamic buckets are whole.
        options.pop(option_keys.BUCKET_KEY.name, None)
    return {**options, option_keys.CHANGELOG_PRODUCER.name: "input"} if is_merged else options


def _gives_merged_changes(schema: TableSchema) -> bool:
    traits = TableTraits.of(schema)
    return traits.primary_key and traits.producer.complete


_USER = "pypaimon-copy"


class PaimonTarget(TransactionTarget):
    """Another Paimon table that follows a stream exactly once, one commit per plan, or per `commit_interval`.

    The rows of a plan and the position after it are one commit: after a crash the program continues at
    `load_position()`, with nothing lost and nothing twice, also without a primary key. `replicate(builder, target)`
    begins there. The files of an unfinished plan are deleted.

    A table with a primary key takes deletes and updates with their kinds; one with the option `rowkind.field` gets the
    kind of each row in that column. A full state replaces all rows of the table, in the commit of its first plan.

    A table whose options would merge the changes to other rows is refused, unless it is shared: a merge engine other
    than `deduplicate`, `sequence.field`, `ignore-delete`, `record-level.expire-time`.

    Args:
        table: pypaimon's table. Columns are matched by name and cast. Columns that a batch lacks get their
            default value, or become null.
        shared: Others write to the table too, such as the other shards of a stream. A full state is then added to the
            table. A stream that starts again with a state is refused, because deleted rows would be left over.
        commit_user: The user under which the table saves the position: the same after each restart, another one for
            each stream. Default: `pypaimon-copy`. A shared table has no default: without a user a new target begins
            with the state again, and this one has to be closed.
        replace: The state of the source may replace rows that another stream, or another program, has written.
        maintain: As `with_maintenance` of a writer takes it.

    Raises:
        StreamConfigError: `table` is not a table of pypaimon, or `maintain` is invalid.
        UnsupportedTableError: pypaimon cannot write a column of the table.
    """

    _follows_columns = False

    def __init__(
        self,
        table: WritableTable,
        *,
        shared: bool = False,
        commit_user: str | None = None,
        replace: bool = False,
        maintain: When = "off",
    ) -> None:
        needed("PaimonTarget: table", table, "a table of a catalog of pypaimon", "table_schema", "identifier")
        self._table = given = PaimonTable(table)
        self._resumes = commit_user is not None or not shared
        self._user = commit_user or (f"{_USER}-{uuid4()}" if shared else _USER)
        self._maintains = is_automatic_maintenance("PaimonTarget: maintain", maintain)
        self._kind = option_keys.ROWKIND_FIELD.of(given.options)
        self._schema = pa.schema([_arrow_field(field) for field in given.fields])
        self._rows = PaimonRows(
            given, self._open_writer, self._fitted, shared=shared, follows_columns=self._follows_columns
        )
        self._plans = PlanTransactions(self._rows, replace)

    def load_position(self) -> Position | None:
        """Where a stream continues. None: the table holds nothing of it yet, or is shared without a commit user."""
        return super().load_position() if self._resumes else None

    def close(self) -> None:
        """Close the target, and delete the files of an unfinished plan. Idempotent.

        A shared table without a commit user keeps the snapshots after the target's newest commit until then. A later
        batch opens the target again.
        """
        self._plans.leave()
        self._rows.close()

    def _open_writer(self) -> TableWriter:
        return TableWriter(self._table, WriterSettings(self._user, is_named=self._resumes, maintains=self._maintains))

    def _fitted(self, rows: pa.Table, fields: Mapping[str, DataField]) -> pa.Table:
        kinds = rows[ROW_KIND] if ROW_KIND in rows.schema.names and ROW_KIND not in self._schema.names else None
        values = rows if kinds is None else rows.drop_columns([ROW_KIND])
        self._check_columns(values.schema)
        types = {name: field.type for name, field in fields.items()}
        given = [field for field in self._schema if field.name in values.schema.names]
        columns = [self._cast(values[field.name], field, types.get(field.name)) for field in given]
        fitted = pa.Table.from_arrays(columns, schema=pa.schema(given))
        return fitted if kinds is None else fitted.append_column(ROW_KIND, kinds)

    def _cast(self, values: pa.ChunkedArray, field: pa.Field, source: DataType | None) -> pa.ChunkedArray:
        target = next(each.type for each in self._table.fields if each.name == field.name)
        if isinstance(source, AtomicType) and isinstance(target, AtomicType) and not _are_same(source, target):
            try:
                convert = cast(source, target, exact=True, zone=self._table.zone)
                chunks = [convert(chunk) for chunk in values.chunks]
            except CastError as error:
                raise StreamConfigError(f"values do not fit column {field.name} ({field.type}): {error}") from error
            return pa.chunked_array(chunks, field.type)
        return _as_arrow(values, field)

    def _check_columns(self, given: pa.Schema) -> None:
        missing = [name for name in given.names if name not in self._schema.names]
        if missing:
            raise StreamConfigError(
                f"the target table has no column {', '.join(missing)}: add it and load the table again, or leave it "
                "out of the stream with with_projection(...)"
            )
        needed = [field.name for field in self._schema if not field.nullable and field.name != self._kind]
        if lacking := [name for name in needed if name not in given.names]:
            raise StreamConfigError(f"the target table needs {', '.join(lacking)}, which the batch lacks")


def _arrow_field(field: DataField) -> pa.Field:
    try:
        return PyarrowFieldParser.from_paimon_field(field)
    except ValueError as error:
        raise UnsupportedTableError(
            f"the target table has a column '{field.name}' of type {field.type}, which pypaimon cannot write ({error})"
        ) from error


def _are_same(one: AtomicType, other: AtomicType) -> bool:
    return str(one.type).upper() == str(other.type).upper()


def _as_arrow(values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return values.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise StreamConfigError(
            f"values of {values.type} do not fit column {field.name} ({field.type}): {error}"
        ) from error


Fit = Callable[[pa.Table, Mapping[str, DataField]], pa.Table]


class PaimonRows(TransactionalTable):
    """Rows of a Paimon table. Calls block, one at a time.

    Plans may share a commit, with two exceptions, because of what Paimon does with a snapshot:

    - An overwrite has no changelog (Java's `FileStoreCommitImpl.overwritePartition` drops it), so later changes would
      be lost to readers of the copy. Only further parts of the state that replaces the table join it.
    - With `sequence.snapshot-ordering` the rows of one commit have to fit into memory.

    Args:
        table: The table.
        open_writer: Returns an open writer of the table; called again after an error has ended the last one.
        fit: Converts rows with some columns of the source to the columns of the table.
        shared: Others write to the table too: a full state is added to what is there.
        follows_columns: The caller alters the columns of the table when those of the source change.

    Attributes:
        given_keys: The primary key of the table.
        where: Its name.
    """

    waits = True

    is_made = False

    def __init__(
        self,
        table: PaimonTable,
        open_writer: Callable[[], TableWriter],
        fit: Fit = lambda rows, _: rows,
        *,
        shared: bool = False,
        follows_columns: bool = False,
    ) -> None:
        self.given_keys = TargetKeys(table.primary_keys)
        self.where = table.name
        self._handle = table.handle
        self._open_writer = open_writer
        self._fit = fit
        self._shared = shared
        self._follows_columns = follows_columns
        self._orders_by_snapshot = table.traits.snapshot_ordering
        self._writer: TableWriter | None = None
        self._overwrites = False
        self._state: str | None = None
        self._point: Position | None = None

    def saved(self) -> Saved | None:
        writer = self._opened()
        position = writer.position
        return None if position is None else Saved(position.to_json(), writer.source_state)

    def holds_rows(self) -> bool:
        return not self._shared and self._opened().holds_rows()

    def refuse_source(self, source: ReadableTable) -> None:
        refuse_itself(source, self._handle)

    def check(self, batch: AnyBatch) -> None:
        if not self._shared:
            refuse_merging(self._opened().table.schema, batch.schema, self.where)
        elif batch._scope.part and has_keyed_rows(batch) and batch._moves_keys:
            raise StreamConfigError(
                f"The overwrite in snapshot {batch.snapshot_id} has moved keys to other shards, and in a shared table "
                "the delete of one shard may come after the insert of another. Empty the table and start all of its "
                "streams again."
            )

    def can_join(self, batch: AnyBatch) -> bool:
        if self._orders_by_snapshot:
            return False
        return batch.kind is PlanKind.FULL or not self._overwrites

    def begin(self, saved: Saved | None, *, replaces: bool = False) -> None:
        self._opened()
        self._overwrites = False
        self._state = None if saved is None else saved.columns

    def write(self, batch: AnyBatch) -> None:
        self.given_keys.of_batch(batch)
        self._check_columns(batch)
        if batch.begins_state:
            self._begin_state(batch)
        if batch.num_rows:
            # A null that the source holds is its value, also in a column that has a default value here.
            self._current.write(self._fit(self._rows(batch), batch._fields), keeps_nulls=True)

    def save(self, position: str, before: Saved | None) -> Saved | None:
        held = self._current.position
        if (None if held is None else held.to_json()) != (None if before is None else before.position):
            return None
        self._point = Position.from_json(position)
        return Saved(position, self._state)

    def commit(self) -> None:
        self._current.commit(self._point, source_state=self._state)

    def roll_back(self) -> None:
        # A writer that an error has ended has deleted its files.
        if self._current.has_pending:
            self._current.abort()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close(is_done=True)

    def _opened(self) -> TableWriter:
        if self._writer is None or not self._writer.is_open:
            self._writer = self._open_writer()
        return self._writer

    @property
    def _current(self) -> TableWriter:
        """The writer of the open transaction. One that has ended is not replaced here: rows of the plan are lost."""
        assert self._writer is not None
        return self._writer

    def _check_columns(self, batch: AnyBatch) -> None:
        # Columns are matched by name, so a new column must not continue a dropped one of the same name.
        wanted = SavedState.of(batch, [(name, "") for name in batch.rows.schema.names], None)
        if self._state is not None and not (batch.begins_state or self._follows_columns):
            known = SavedState.from_json(self._state)
            refuse_other_columns(known, wanted, f"{self.where} holds", "in another table", is_wider)
        self._state = wanted.to_json()

    def _begin_state(self, batch: AnyBatch) -> None:
        if not self._shared:
            self._overwrites = self._current.replace_table()
        elif batch.plan_before is not None:
            raise StreamConfigError(
                "The stream starts again with a full state, which cannot replace its part of a shared table. Empty "
                "the table and start all of its streams again."
            )

    def _rows(self, batch: AnyBatch) -> pa.Table:
        if not self._current.is_keyed:
            return inserts(batch)
        rows, name = batch.rows, self._current.kind_column or ROW_KIND
        kinds = batch.kinds.cast(pa.string())
        if name in rows.schema.names:
            return rows.set_column(rows.schema.get_field_index(name), name, kinds)
        return rows.append_column(name, kinds)
