"""`RowSelection`: which rows and columns a plan was made for, as its splits carry it to their reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pypaimon.streaming.filter_internals import Predicate


@dataclass(frozen=True, slots=True)
class RowSelection:
    """A filter and a projection, under the names of one schema.

    Attributes:
        schema_id: The schema.
        predicate: The filter; None: every row.
        unmatched: What becomes of records of an upsert stream that do not match, as `Unmatched` says.
        projection: The columns, fields of rows as `row.field`; None: all.
        output_names: What they are called; None: as they are.
        nested: Whether fields of rows stay inside of them.
    """

    schema_id: int
    predicate: Predicate | None = None
    unmatched: str = "delete"
    projection: tuple[str, ...] | None = None
    output_names: tuple[str, ...] | None = None
    nested: bool = False

    @property
    def is_everything(self) -> bool:
        """Whether it leaves out nothing."""
        return self.predicate is None and self.projection is None

    @property
    def filter_text(self) -> str:
        """The call that set the filter."""
        return f"with_filter({_text(self.predicate)}, unmatched={self.unmatched!r})"

    @property
    def columns_text(self) -> str:
        """The call that set the projection."""
        assert self.projection is not None
        if self.output_names is None:
            return f"with_projection({list(self.projection)})"
        return f"with_projection({dict(zip(self.output_names, self.projection, strict=True))})"


def _text(predicate: Predicate | None) -> str:
    assert predicate is not None
    if predicate.method in ("and", "or"):
        return "(" + f" {predicate.method} ".join(_text(part) for part in predicate.literals or ()) + ")"
    literals = "".join(f" {literal!r}" for literal in predicate.literals or ())
    return f"{predicate.field} {predicate.method}{literals}"
