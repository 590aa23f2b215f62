"""`ReadParts`: the parts of a read once it knows its table, adapted to the settings of its splits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.files.deletion_vectors import IndexBlocks
from pypaimon.streaming.filtering.field_paths import rebound, rebound_filter
from pypaimon.streaming.filtering.filters import columns_of, conjunction
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.plan import StreamSplit
from pypaimon.streaming.model.row_selection import RowSelection
from pypaimon.streaming.options.stream_options import Unmatched, refuse_hidden_deletes
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.paimon.internals import TableSchema
from pypaimon.streaming.reading.file_prefetch import FilePrefetcher, ReadPieces
from pypaimon.streaming.reading.query_auth import QueryAuth
from pypaimon.streaming.reading.read_layout import ReadLayout, ReadSettings, follow, layout, schema_key


@dataclass(frozen=True, slots=True, eq=False)
class ReadParts:
    """The parts of a read."""

    directory: TableDirectory
    settings: ReadSettings
    layouts: dict[tuple[int, int], ReadLayout]
    index_blocks: IndexBlocks
    prefetcher: FilePrefetcher
    auth: QueryAuth | None

    @staticmethod
    def of(directory: TableDirectory, settings: ReadSettings) -> ReadParts:
        """Make the parts. Sends no requests."""
        layouts = {schema_key(settings.schema): layout(settings)}
        blocks = IndexBlocks(directory.store)
        filtered = settings.predicate is not None
        ahead = FilePrefetcher(directory, ReadPieces(directory, blocks, layouts, settings.schema, filtered))
        return ReadParts(directory, settings, layouts, blocks, ahead, QueryAuth.of(directory))

    def layout_of(self, schema: TableSchema) -> ReadLayout:
        known = self.layouts.get(schema_key(schema))
        if known is None:
            if any(schema_id == schema.id for schema_id, _ in self.layouts):
                # After a rollback another schema has this id. The schemas of files may have changed too.
                self.directory.forget()
            known = self.layouts[schema_key(schema)] = follow(self.settings, schema)
        return known


def planned_for(splits: Sequence[StreamSplit]) -> RowSelection | None:
    """The filter and columns that splits were planned with; None: all rows and columns. Raises StreamConfigError if the
    splits were planned with different filters or columns.
    """
    found = splits[0].planned_for if splits else None
    for split in splits:
        other = split.planned_for
        # Splits of one scan share this object, unless they were pickled one by one.
        if other is not found and other != found:
            raise StreamConfigError(
                f"These splits were planned with different settings: {_named(found)}, and {_named(other)}. Read those "
                "of one scan at a time."
            )
    return found


def parts_as_planned(own: ReadParts, planned: RowSelection, *, differences: bool) -> ReadParts:
    """The parts for splits that were planned with a filter or columns; `own` if they add nothing. Raises
    StreamConfigError if the read has another filter or other columns, or it hides which rows are deletes, unless the
    splits compare two states (`differences`), where no record replaces another.
    """
    settings = _settings_as_planned(own.settings, planned, own.directory.reading_schema(planned.schema_id))
    if settings is own.settings:
        return own
    if not differences:
        _refuse_hidden(settings)
    return ReadParts.of(own.directory, settings)


def _settings_as_planned(own: ReadSettings, planned: RowSelection, schema: TableSchema) -> ReadSettings:
    planned = _renamed(planned, schema, own.schema)
    mine = RowSelection(
        own.schema.id, own.own_filter, own.unmatched.value, own.projection, own.output_names, nested=own.nested
    )
    settings = own
    if planned.predicate is not None and mine.predicate is None:
        # `own.predicate` is the filter of the table's options here.
        predicate = conjunction([each for each in (own.predicate, planned.predicate) if each is not None])
        settings = replace(settings, predicate=predicate, unmatched=Unmatched(planned.unmatched))
    elif planned.predicate is not None and mine.filter_text != planned.filter_text:
        raise _contradiction(mine.filter_text, planned.filter_text)
    if planned.projection is not None:
        columns = replace(own, projection=planned.projection, output_names=planned.output_names, nested=planned.nested)
        if mine.projection is None:
            settings = replace(
                settings, projection=columns.projection, output_names=columns.output_names, nested=columns.nested
            )
        elif layout(columns).outputs != layout(own).outputs:
            raise _contradiction(mine.columns_text, planned.columns_text)
    return settings


def _refuse_hidden(settings: ReadSettings) -> None:
    if settings.predicate is not None and settings.view is None:
        hides_kinds = not settings.include_row_kind and TableTraits.of(settings.schema).can_retract
        filtered = columns_of(settings.predicate)
        refuse_hidden_deletes(settings.schema, filtered, settings.unmatched, raw=False, hides_kinds=hides_kinds)


def _renamed(planned: RowSelection, schema: TableSchema, own: TableSchema) -> RowSelection:
    if schema.id == own.id:
        return planned
    columns = planned.projection
    return replace(
        planned,
        schema_id=own.id,
        predicate=rebound_filter(planned.predicate, schema, own),
        projection=None if columns is None else tuple(rebound(name, schema, own) for name in columns),
    )


def _named(planned: RowSelection | None) -> str:
    if planned is None:
        return "no filter and all columns"
    calls = [planned.filter_text] if planned.predicate is not None else []
    calls += [planned.columns_text] if planned.projection is not None else []
    return " and ".join(calls)


def _contradiction(own: str, planned: str) -> StreamConfigError:
    return StreamConfigError(
        f"This read has {own}, but its splits were planned with {planned}. Give the builder of the read the same "
        "setting, or none: without its own setting a read takes that of the splits."
    )
