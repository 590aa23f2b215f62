"""The hint to the earliest snapshot of a branch, which hides the snapshots that expire."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from pypaimon.streaming.errors import MaintenanceConflictError
from pypaimon.streaming.io.conditional_writes import ChangedFileError
from pypaimon.streaming.metadata.table_directory import TableDirectory


class EarliestHint:
    """The hint as one run moves it. Other runs, and Java's expiry, may move it too.

    Readers believe it if the snapshot before it is gone. A hint that is moved back past such a snapshot shows them
    what is left of an interrupted run, with a gap.

    Args:
        directory: The files of the branch.
        path: The file of the hint.

    Attributes:
        leads_further: Whether it already led to a later snapshot than this run asked for.
    """

    def __init__(self, directory: TableDirectory, path: str) -> None:
        self._directory = directory
        self._snapshots = directory.snapshots
        self._store = directory.store
        self._table = str(directory.table.identifier.get_full_name())
        self._path = path
        self._to: int | None = None
        self._before: int | None = None
        self.leads_further = False

    def move(self, to: int, first: int) -> None:
        """Move it; `first` is the earliest snapshot that readers found when the run was planned.

        It is not moved back: if another run, which is under way or was killed, hides more snapshots, it stays.

        Raises:
            MaintenanceConflictError: Another run has moved it since, and has deleted the snapshot before it.
        """
        hinted = self._snapshots.hinted_earliest_id()
        if hinted is not None and hinted != first and self._is_believed(hinted):
            raise MaintenanceConflictError(self._table, f"another run has expired snapshot {hinted - 1}")
        self.leads_further = hinted is not None and hinted > to
        if self.leads_further:
            return
        self._to, self._before = to, first if hinted is None else hinted
        self._store.write_atomic(self._path, str(to).encode())

    def move_back(self, is_alone: Callable[[], bool]) -> None:
        """Undo `move`, unless another program has moved it since.

        A branch that was deleted meanwhile would seem to be there as long as it has a hint.

        Args:
            is_alone: Looks for other runs. One that is under way, or was killed, may rely on the hint: it stays then.
        """
        if self._to is None:
            return
        if not self._directory.exists():
            self._store.delete(self._path)
        elif is_alone():
            # Java's expiry has no plan, but writes the hint last.
            with suppress(FileNotFoundError, ChangedFileError):
                hinted, seen = self._store.look(self._path, bytes)
                if hinted.strip() == str(self._to).encode():
                    self._store.replace(self._path, str(self._before).encode(), seen)

    def check(self) -> None:
        """Check that it is still where it was moved to.

        Raises:
            MaintenanceConflictError: Another run has moved it.
        """
        if self._snapshots.hinted_earliest_id() != self._to:
            raise MaintenanceConflictError(self._table, "another run expires other snapshots")

    def restore(self) -> None:
        """Move it again if another run has moved it back after the check."""
        hinted = self._snapshots.hinted_earliest_id()
        if self._to is not None and (hinted is None or hinted < self._to):
            self._store.write_atomic(self._path, str(self._to).encode())

    def _is_believed(self, hinted: int) -> bool:
        return self._snapshots.refreshed(hinted) is not None and self._snapshots.refreshed(hinted - 1) is None
