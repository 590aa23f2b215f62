"""`ReadParts`: what a read works with once it knows its table."""

from __future__ import annotations

from dataclasses import dataclass

from pypaimon.streaming.files.deletion_vectors import IndexBlocks
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.reading.files_ahead import FilesAhead
from pypaimon.streaming.reading.query_auth import QueryAuth
from pypaimon.streaming.reading.read_layout import Layout, ReadSettings, follow, layout
from pypaimon.streaming.reading.read_pieces import ReadPieces, schema_key


@dataclass(frozen=True, slots=True, eq=False)
class ReadParts:
    """What a read works with once it knows its table.

    Attributes:
        directory: The table.
        settings: How splits become rows.
        layouts: The settings bound to each schema that came up, first to their own.
        index_blocks: Index files of deletion vectors.
        files_ahead: Has data files on their way before they are read.
        auth: What the catalog says about its rows and columns; None: nothing.
    """

    directory: TableDirectory
    settings: ReadSettings
    layouts: dict[tuple[int, int], Layout]
    index_blocks: IndexBlocks
    files_ahead: FilesAhead
    auth: QueryAuth | None

    @staticmethod
    def of(directory: TableDirectory, settings: ReadSettings) -> ReadParts:
        """Put them together. Asks for nothing."""
        layouts = {schema_key(settings.schema): layout(settings)}
        blocks = IndexBlocks(directory.store)
        filtered = settings.predicate is not None
        ahead = FilesAhead(directory, ReadPieces(directory, blocks, layouts, settings.schema, filtered=filtered))
        return ReadParts(directory, settings, layouts, blocks, ahead, QueryAuth.of(directory))

    def layout_of(self, schema: TableSchema) -> Layout:
        """The settings bound to a schema."""
        known = self.layouts.get(schema_key(schema))
        if known is None:
            if any(schema_id == schema.id for schema_id, _ in self.layouts):
                # A rollback came between: the schemas of files may be others too.
                self.directory.forget()
            known = self.layouts[schema_key(schema)] = follow(self.settings, schema)
        return known
