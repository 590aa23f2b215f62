"""The hint to the earliest snapshot of a branch, which hides the snapshots that expire."""

from __future__ import annotations

from contextlib import suppress

from pypaimon.streaming.errors import MaintenanceConflictError
from pypaimon.streaming.io.conditional_writes import ChangedFileError
from pypaimon.streaming.metadata.table_directory import TableDirectory


class EarliestHint:
    """The hint as one run moves it.

    Readers believe it if the snapshot before it is gone. If it is moved past such a snapshot, in either direction, they
    find what is left of an interrupted run, with a gap. So only a run that finds no plan of another one moves it before
    it deletes anything. Java's expiry has no plan: it deletes the oldest snapshot first, and moves the hint at the end.

    Args:
        directory: The files of the branch.
        path: The file of the hint.
        to: The snapshot that it is to lead to; None: the run deletes no snapshot.

    Attributes:
        is_moved: Whether this run has moved it.
    """

    def __init__(self, directory: TableDirectory, path: str, to: int | None) -> None:
        self._snapshots = directory.snapshots
        self._store = directory.store
        self._table = str(directory.table.identifier.get_full_name())
        self._path = path
        self._to = to
        self._before = to
        self.is_moved = False

    def move(self, first: int) -> None:
        """Move it; `first` is the earliest snapshot that readers found when the run was planned.

        Raises:
            MaintenanceConflictError: Another run has moved it since, and has deleted the snapshot before it.
        """
        hinted = self._snapshots.hinted_earliest_id()
        if hinted is not None and hinted != first and self._is_believed(hinted):
            raise MaintenanceConflictError(self._table, f"another run has expired snapshot {hinted - 1}")
        self._before = first if hinted is None else hinted
        self.is_moved = True
        self._write(self._to)

    def move_back(self) -> None:
        """Undo `move`, unless another program has moved it since."""
        if not self.is_moved:
            return
        with suppress(FileNotFoundError, ChangedFileError):
            hinted, seen = self._store.look(self._path, bytes)
            if hinted.strip() == str(self._to).encode():
                self._store.replace(self._path, str(self._before).encode(), seen)

    def check(self) -> None:
        """Check that it is still where it was moved to.

        Raises:
            MaintenanceConflictError: Another program has moved it.
        """
        if self._snapshots.hinted_earliest_id() != self._to:
            raise MaintenanceConflictError(self._table, "another run expires other snapshots")

    def advance(self) -> None:
        """Move it if it leads to an earlier snapshot: this run has not moved it, or Java's expiry has moved it back."""
        hinted = self._snapshots.hinted_earliest_id()
        if self._to is not None and (hinted is None or hinted < self._to):
            self._write(self._to)

    def _write(self, number: int | None) -> None:
        self._store.write_atomic(self._path, str(number).encode())

    def _is_believed(self, hinted: int) -> bool:
        return self._snapshots.refreshed(hinted) is not None and self._snapshots.refreshed(hinted - 1) is None
