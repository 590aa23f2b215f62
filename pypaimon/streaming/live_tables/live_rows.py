"""`LiveRows`: the rows of one state of a table, wherever they are held; and which state that is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from pypaimon.streaming.batches.batch import BlockingBatch

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]


@dataclass(frozen=True, slots=True)
class Moment:
    """Which state of its table something is.

    Attributes:
        snapshot_id: The last snapshot that is in it; None: the table had none.
        commit_time: When that was committed (aware, UTC); None likewise.
    """

    snapshot_id: int | None = None
    commit_time: datetime | None = None


class LiveRows(Protocol):
    """Rows by key. One thread applies plans; any may read meanwhile, and sees each plan wholly or not at all."""

    @property
    def moment(self) -> Moment:
        """Which state of the table it is."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes."""

    def __len__(self) -> int:
        """How many rows there are."""

    def get(self, key: Any) -> dict[str, Any] | None:
        """The row of a key; None: there is none."""

    def get_many(self, keys: Any) -> pa.Table:
        """A row for each key, in order; its values are null where there is none."""

    def to_arrow(self) -> pa.Table:
        """All rows, in no order."""

    def to_duckdb(self, name: str) -> duckdb.DuckDBPyConnection:
        """A connection that has this state under a name."""

    def apply(self, batch: BlockingBatch, moment: Moment | None) -> LiveRows:
        """Apply a batch of a plan.

        Args:
            batch: It.
            moment: What the rows are then; None: nobody sees it until that is told, here or by `reach`.

        Returns:
            What holds the rows from now on: another one where these cannot.
        """

    def reach(self, moment: Moment) -> None:
        """All that was applied is seen from now on; the rows are those of a moment."""
