"""`LakeTable`: a table whose formats commit files, so that the rows of a plan are written at its end."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

from pypaimon.streaming.targets.plan_transactions import TransactionalTable, is_same_place
from pypaimon.streaming.targets.row_staging import PlanStaging
from pypaimon.streaming.targets.target_keys import GivenKeys, TargetKeys
from pypaimon.streaming.targets.target_state import Saved

T = TypeVar("T")


class LakeTable(TransactionalTable, Generic[T]):
    """A table whose newest commit of a plan notes the position.

    Attributes:
        keys: The key columns of the last batch; empty: rows are appended.
    """

    def __init__(self, where: str, keys: GivenKeys) -> None:
        self.where = where
        self.given_keys = TargetKeys(keys)
        self.keys: list[str] = []
        self._before: Saved | None = None
        self._plan: PlanStaging | None = None
        self._table: T | None = None
        self._position = ""

    def saved(self) -> Saved | None:
        with self._translated():
            return self._saved_in(self._load())

    def save(self, position: str, before: Saved | None) -> Saved | None:
        assert self._plan is not None
        with self._translated():
            self._table = self._load()
            if not is_same_place(self._saved_in(self._table), before):
                return None
            self._prepare(self._plan)
        self._position = position
        return self._plan.saved(position)

    def roll_back(self) -> None:
        """Drop the rows. Files that were written belong to no commit."""
        self._end()

    def _end(self) -> None:
        plan, self._plan, self._table = self._plan, None, None
        if plan is not None:
            plan.close()

    @abstractmethod
    def _load(self) -> T | None: ...

    @abstractmethod
    def _saved_in(self, table: T | None) -> Saved | None: ...

    @abstractmethod
    def _prepare(self, plan: PlanStaging) -> None: ...

    @abstractmethod
    def _translated(self) -> AbstractContextManager[None]: ...
