"""`RowSelection`: the rows and columns that a plan was made for, which its splits carry to their reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pypaimon.streaming.paimon.filter_internals import Predicate


@dataclass(frozen=True, slots=True)
class RowSelection:
    """A filter and a projection, with the names of one schema.

    Attributes:
        schema_id: The schema.
        predicate: The filter; None: all rows.
        unmatched: What records of an upsert stream become that do not match: a value of `Unmatched`.
        projection: The columns, fields of rows as `row.field`; None: all.
        output_names: Their names; None: their own.
        nested: Whether fields of rows stay inside of their rows.
    """

    schema_id: int
    predicate: Predicate | None = None
    unmatched: str = "delete"
    projection: tuple[str, ...] | None = None
    output_names: tuple[str, ...] | None = None
    nested: bool = False

    @property
    def is_everything(self) -> bool:
        return self.predicate is None and self.projection is None

    @property
    def filter_text(self) -> str:
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
