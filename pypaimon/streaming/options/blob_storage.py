"""`BlobStorage`: where a table keeps the blobs of its columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.data_types import BLOB, is_blob, is_blob_collection
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.arguments import typed
from pypaimon.streaming.paimon.internals import DataField, TableSchema


@dataclass(frozen=True, slots=True)
class BlobStorage:
    """Where a table keeps its blobs.

    Attributes:
        dedicated: Whether blob columns have blob files of their own, except those in `descriptors` and `views`.
        descriptors: Columns whose data files hold descriptors from the writer.
        views: Columns whose data files hold references to rows of other tables.
        resolves_views: Whether these references are resolved. Otherwise they come out as they are.
    """

    dedicated: bool
    descriptors: frozenset[str]
    views: frozenset[str]
    resolves_views: bool

    @staticmethod
    def of(schema: TableSchema) -> BlobStorage:
        """The blob storage that a schema's options describe."""
        options = schema.options
        return BlobStorage(
            dedicated=not schema.primary_keys and option_keys.DATA_EVOLUTION_ENABLED.of(options),
            descriptors=_names(option_keys.BLOB_DESCRIPTOR_FIELD.of(options)),
            views=_names(option_keys.BLOB_VIEW_FIELD.of(options)),
            resolves_views=option_keys.BLOB_VIEW_RESOLVE_ENABLED.of(options),
        )

    def in_blob_files(self, field: DataField) -> bool:
        """Whether the values of a field are in blob files."""
        if not self.dedicated or field.name in self.descriptors or field.name in self.views:
            return False
        return is_blob(field.type) or is_blob_collection(field.type)

    def as_read(self, field: DataField) -> DataField:
        """The field as it is read first. A collection of blobs is stored as one blob that names its elements."""
        if not (self.in_blob_files(field) and is_blob_collection(field.type)):
            return field
        return DataField(field.id, field.name, BLOB, field.description, field.default_value)


def _names(text: str | None) -> frozenset[str]:
    return frozenset(filter(None, (name.strip() for name in (text or "").split(","))))


def places_of_arguments(call: str, given: Iterable[str]) -> tuple[str, ...]:
    """Directories that may hold blobs, as `with_blob_places` takes them.

    Raises:
        StreamConfigError: A value is not a directory, or one that a FileIO cannot read.
    """
    if isinstance(given, (str, dict)) or not isinstance(given, Iterable):
        raise StreamConfigError(f"{call}({given!r}): give a list of directories")
    found = tuple(typed(str, call, each) for each in given)
    for each in found:
        if not each or each.lower().startswith(("http:", "https:")):
            raise StreamConfigError(f"{call}: {each!r} is not a directory that the table's FileIO can read")
    return found
