"""`PinnedSchema`: the schema with which a write was planned, and under which all its tasks write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.errors import TableChangedError
from pypaimon.streaming.metadata.paimon_table import PaimonTable


@dataclass(frozen=True, slots=True)
class PinnedSchema:
    """A schema of a table, distinguished from another one of the same id.

    Paimon's data files record the schema that they were written with, and readers find columns by field id. So a batch
    that is written and committed under the schema of its plan is right even if columns are renamed, added, dropped or
    widened meanwhile, as if that had happened after the commit. Java does the same: a writer keeps the schema that it
    was opened with.
    """

    identity: str
    schema_id: int
    # Id, name and type of its columns, because after a rollback another schema may have the same id
    columns: tuple[tuple[int, str, str], ...]

    @staticmethod
    def of(table: PaimonTable) -> PinnedSchema:
        """The schema of a table handle. One request."""
        schema = table.schema
        return PinnedSchema(table.new_directory().current_identity(), schema.id, _columns(schema))

    def apply(self, table: PaimonTable) -> PaimonTable:
        """The table under this schema. One request if its schema is another one now. Raises TableChangedError if the
        schema is gone.
        """
        schema = table.schema
        if (schema.id, _columns(schema)) == (self.schema_id, self.columns):
            return table
        try:
            pinned = table.new_directory().reading_schema(self.schema_id)
        except FileNotFoundError:
            raise self._gone(table) from None
        if _columns(pinned) != self.columns:
            raise self._gone(table)
        return table.with_schema(pinned)

    def check(self, table: PaimonTable) -> None:
        """Check that the table is still the same one, before anything is committed to it. One request. Raises
        TableChangedError if it was dropped or recreated.
        """
        try:
            identity = table.new_directory().current_identity()
        except FileNotFoundError:
            raise self._gone(table) from None
        if identity != self.identity:
            raise self._gone(table)

    def _gone(self, table: PaimonTable) -> TableChangedError:
        return TableChangedError(
            f"{table.name} was dropped or recreated, or its schema {self.schema_id} was rolled "
            "back, while the batch was written. Nothing was committed. Run it again to write to the current table."
        )


def _columns(schema: Any) -> tuple[tuple[int, str, str], ...]:
    return tuple((field.id, field.name, str(field.type)) for field in schema.fields)
