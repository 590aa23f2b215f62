"""`TableFacts`: what a stream must know of its table before it reads; at most two requests."""

from __future__ import annotations

from dataclasses import dataclass

from pypaimon.streaming.errors import TableChangedError
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.paimon.internals import TableSchema


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The facts of a table at the time of the requests.

    Attributes:
        newest: Its newest schema.
        schema: The newest schema with the options that the table handle adds, with which streams read.
        traits: Its kind.
        identity: Its identity, see `TableDirectory.identity`.
    """

    newest: TableSchema
    schema: TableSchema
    traits: TableTraits
    identity: str

    @staticmethod
    def of(directory: TableDirectory, newest: TableSchema | None = None) -> TableFacts:
        """Read the facts of a table. Blocks.

        Args:
            directory: Directory of the table; its threads are released afterwards.
            newest: The newest schema, if it was just read.

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
