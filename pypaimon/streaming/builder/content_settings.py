"""`ContentSettings`: the setters that choose the rows and columns of a stream, and their form."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pypaimon.streaming.builder.checks import known_columns
from pypaimon.streaming.builder.projections import check_types, named_columns, read_type_paths
from pypaimon.streaming.builder.table_facts import TableFacts
from pypaimon.streaming.concurrency.lazy import Lazy
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.filtering.filters import columns_of
from pypaimon.streaming.lazy_imports import LazyModule
from pypaimon.streaming.options.arguments import choice, typed
from pypaimon.streaming.options.blob_storage import places_of_arguments
from pypaimon.streaming.options.stream_options import GivenOptions, Unmatched
from pypaimon.streaming.options.views import View, fields
from pypaimon.streaming.paimon.internals import DataField

if TYPE_CHECKING:
    import pypaimon.streaming.paimon.filter_internals as filter_internals
else:
    filter_internals = LazyModule("pypaimon.streaming.paimon.filter_internals")

B = TypeVar("B", bound="ContentSettings")


class ContentSettings:
    """The rows and columns to read. Names of columns are checked at once if the table is known, else later.

    Args:
        facts: The table.
        view: The view that is read, or None for the table itself.
    """

    def __init__(self, facts: Lazy[TableFacts], view: View | None) -> None:
        self._facts = facts
        self._view = view
        self._given = GivenOptions()
        self._filter_text: str | None = None
        self._projection: tuple[str, ...] | None = None
        self._output_names: tuple[str, ...] | None = None
        self._read_type: tuple[DataField, ...] | None = None
        self._include_row_kind: bool | None = None
        self._blob_descriptors: bool | None = None
        self._blob_places: tuple[str, ...] | None = None

    def copy(self: B) -> B:
        """An independent builder with the same settings."""
        return copy.copy(self)

    def with_filter(
        self: B, predicate: filter_internals.Predicate | str | None, unmatched: Literal["delete", "drop"] = "delete"
    ) -> B:
        """Read only rows that match.

        Args:
            predicate: A text such as `"status = 'paid' and amount > 1"`, or made with `new_predicate_builder()`.
            unmatched: What to do with a record of a primary-key stream with changelog producer `none` or `input` that
                does not match: `"delete"`: give it as -D, so that nothing stale stays downstream; `"drop"`: drop it.

        Raises:
            StreamConfigError: A column does not exist, the text is not a filter, or `unmatched` is unknown.
        """
        chosen = choice(Unmatched, "with_filter: unmatched", unmatched)
        text = None
        if isinstance(predicate, str):
            text, predicate = predicate, self._parsed(predicate)
        elif predicate is not None:
            from pypaimon.streaming.paimon.filter_internals import Predicate

            typed(Predicate, "with_filter", predicate)
            self._check_columns("with_filter", columns_of(predicate))
        self._given = replace(self._given, predicate=predicate, unmatched=chosen)
        self._filter_text = text
        return self

    def with_projection(self: B, projection: Iterable[str] | Mapping[str, str] | None) -> B:
        """Read only these columns, in this order; fields of rows as `row.field`. None: all.

        Args:
            projection: Names of columns, or a mapping from output names to columns.

        Raises:
            StreamConfigError: A column does not exist, or is named twice.
        """
        names: tuple[str, ...] | None = None
        columns: Iterable[str] | None = projection
        if isinstance(projection, Mapping):
            names, columns = named_columns(projection)
        elif projection is not None and (isinstance(projection, str) or not isinstance(projection, Iterable)):
            raise StreamConfigError(f"with_projection({projection!r}): give a list of column names, or a mapping")
        chosen = None if columns is None else self._check_columns("with_projection", columns)
        if names is None and chosen is not None and len(set(chosen)) != len(chosen):
            raise StreamConfigError(f"with_projection: a column is named twice in {list(chosen)}")
        self._projection, self._output_names, self._read_type = chosen, names, None
        return self

    def with_read_type(self: B, read_type: Iterable[DataField]) -> B:
        """Read only these columns, in this order, and of a row only the fields of its type. Like `with_projection`.

        Args:
            read_type: pypaimon's fields, as `table.fields` or `read_type()` has them.

        Raises:
            StreamConfigError: A column does not exist, has another type, or is named twice.
        """
        given = tuple(read_type) if isinstance(read_type, Iterable) else read_type
        paths = self._check_columns("with_read_type", read_type_paths(given))
        self._projection, self._output_names, self._read_type = paths, None, given
        self._check_types()
        return self

    def with_include_row_kind(self: B, include: bool = True) -> B:
        """Choose whether `_row_kind` (`+I -U +U -D`) is the first column; default: if the stream can give -U or -D."""
        self._include_row_kind = typed(bool, "with_include_row_kind", include)
        return self

    def with_blob_descriptors(self: B, descriptors: bool = True) -> B:
        """Give pypaimon's serialised descriptors of blobs instead of their bytes, and fetch none.

        `StreamTableRead.blobs` makes objects of them that read on demand. By default the table's option
        `blob-as-descriptor` decides.
        """
        self._blob_descriptors = typed(bool, "with_blob_descriptors", descriptors)
        return self

    def with_blob_places(self: B, places: Iterable[str] | None) -> B:
        """Set where descriptors in the table may point; a descriptor that points elsewhere is an error.

        Args:
            places: Directories, as paths or URIs, in addition to that of the table. None: the whole file system or
                bucket of the table.

        Raises:
            StreamConfigError: The table's FileIO cannot read such a directory.
        """
        self._blob_places = None if places is None else places_of_arguments("with_blob_places", places)
        return self

    def _check_columns(self, what: str, names: Iterable[Any]) -> tuple[str, ...]:
        """The names, checked against the table if it is known."""
        facts = self._facts.known
        if facts is None:
            return tuple(typed(str, what, name) for name in names)
        return known_columns(what, names, {field.name for field in fields(facts.schema, self._view)})

    def _check_types(self) -> None:
        facts = self._facts.known
        if facts is not None and self._read_type is not None:
            check_types(self._read_type, fields(facts.schema, self._view))

    def _parsed(self, text: str) -> filter_internals.Predicate | None:
        """The predicate of a text; None while the table is not known."""
        from pypaimon.streaming.filtering.filter_text import parse_filter

        facts = self._facts.known
        return None if facts is None else parse_filter(text, fields(facts.schema, self._view))

    def _resolve_columns(self) -> None:
        """Check names that were given before the table was known, and parse the filter."""
        if self._filter_text is not None:
            self._given = replace(self._given, predicate=self._parsed(self._filter_text))
        predicate = self._given.predicate
        self._check_columns("with_filter", () if predicate is None else columns_of(predicate))
        self._check_columns("with_projection", self._projection or ())
        self._check_types()
