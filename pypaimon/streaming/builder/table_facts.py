"""`TableFacts`: what a stream must know of its table before anything is read: two requests at most."""

from __future__ import annotations

from dataclasses import dataclass

from pypaimon.streaming.errors import TableChangedError
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options.table_traits import TableTraits


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table as it was when it was asked for.

    Attributes:
        newest: Its newest schema.
        schema: The same, with the options that the table handle adds: what streams read with.
        traits: Its kind.
        identity: Which table it is, see `TableDirectory.identity`.
    """

    newest: TableSchema
    schema: TableSchema
    traits: TableTraits
    identity: str

    @staticmethod
    def of(directory: TableDirectory, newest: TableSchema | None = None) -> TableFacts:
        """Ask the store. Blocks.

        Args:
            directory: Of the table; asks, and keeps no thread for it.
            newest: The newest schema, where that was read just now.

        Raises:
            TableChangedError: The table is gone.
            PaimonStreamError: The store fails, or the schema cannot be read.
        """
        try:
            if newest is None:
                newest = directory.latest_schema()
            directory.know(newest)
            identity = directory.identity
        except FileNotFoundError as error:
            raise TableChangedError(f"The table was dropped: {error} is not there. Load the table again.") from error
        finally:
            directory.store.pool.release()
        schema = directory.reading_schema(newest.id)
        return TableFacts(newest, schema, TableTraits.of(schema), identity)
