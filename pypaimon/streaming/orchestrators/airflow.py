"""For Airflow: a sensor that succeeds when a table has new snapshots, and the trigger that waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar

from pypaimon.streaming.catalog_access import open_table
from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.lazy_imports import naming_extra
from pypaimon.streaming.orchestrators.snapshot_cursors import (
    DEFAULT_LIMIT,
    NewSnapshot,
    new_snapshots,
    wait_for_snapshots,
)

with naming_extra(__name__, {"airflow": "airflow"}):
    from airflow.sdk.bases.sensor import BaseSensorOperator, PokeReturnValue
    from airflow.sdk.exceptions import AirflowFailException
    from airflow.triggers.base import BaseTrigger, TriggerEvent


def _payload(table: str, found: Sequence[NewSnapshot]) -> dict[str, Any]:
    """The snapshots as one: from the first one's position to the last one's end."""
    return {"table": table, **found[-1].to_dict(), "position": found[0].position}


class SnapshotTrigger(BaseTrigger):
    """Fires once, as soon as a table has snapshots after a cursor.

    It keeps no state but its arguments, which Airflow stores until the task has its event: a triggerer that restarts
    looks from the same cursor. It asks the store on threads of its own, never on the triggerer's event loop, and waits
    out failures that may pass.

    Args:
        table: `database.table`.
        options: Options of the catalog, as `open_table` takes them. Airflow encrypts them in its database.
        cursor: The cursor of the last event; None: fire with the state of the table.
        poke_interval: Seconds between two looks.
        limit: The most snapshots of one event.
    """

    def __init__(
        self,
        table: str,
        options: Mapping[str, str],
        cursor: str | None = None,
        poke_interval: float = 60.0,
        limit: int = DEFAULT_LIMIT,
    ) -> None:
        super().__init__()
        self.table = table
        self.options = dict(options)
        self.cursor = cursor
        self.poke_interval = poke_interval
        self.limit = limit

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its arguments."""
        names = ("table", "options", "cursor", "poke_interval", "limit")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event: what `SnapshotSensor` returns, or an `error` that no retry heals."""
        payload = None
        while payload is None:
            payload = await self._looked()
        yield TriggerEvent(payload)

    async def _looked(self) -> dict[str, Any] | None:
        """The payload; None after a failure that may pass, and a pause."""
        try:
            table = await asyncio.to_thread(open_table, self.table, self.options)
            return _payload(self.table, await wait_for_snapshots(table, self.cursor, self.poke_interval, self.limit))
        except PaimonStreamError as error:
            if not error.retriable:
                return {"error": str(error)}
            self.log.warning("%s; looking again in %g s", error, self.poke_interval)
        await asyncio.sleep(self.poke_interval)
        return None


class SnapshotSensor(BaseSensorOperator):
    """Succeeds when a table has snapshots after those that the Dag's former run of this task has returned.

    It returns a dict for the next tasks, with `table`, `position`, `snapshot_id` and `cursor`:
    `stream_read_builder(table).with_start(position=...).with_end(snapshot_id=...)` reads what is new. The first run
    returns the state of the table. The cursor is the XCom of the task's last run, so each snapshot is returned once,
    also over restarts and retries; a run that fails later is repeated with the same XCom.

    Args:
        table: `database.table`.
        options: Options of the catalog, as `open_table` takes them; templates are filled in.
        deferrable: Whether to wait in the triggerer instead of a worker.
        limit: The most snapshots that a run gets.
        kwargs: As `BaseSensorOperator` takes them.
    """

    template_fields: ClassVar[Sequence[str]] = ("table", "options")

    def __init__(
        self,
        *,
        table: str,
        options: Mapping[str, str],
        deferrable: bool = True,
        limit: int = DEFAULT_LIMIT,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.options = options
        self.deferrable = deferrable
        self.limit = limit

    def execute(self, context: Any) -> Any:
        """Look once, then wait in the triggerer, if it is deferrable."""
        if not self.deferrable:
            return super().execute(context)
        if found := self._look(context):
            return _payload(self.table, found)
        trigger = SnapshotTrigger(
            self.table, self.options, self._cursor(context), poke_interval=self.poke_interval, limit=self.limit
        )
        return self.defer(trigger=trigger, method_name="execute_complete", timeout=self.timeout)

    def poke(self, context: Any) -> PokeReturnValue:
        """Whether there are new snapshots."""
        found = self._look(context)
        return PokeReturnValue(bool(found), _payload(self.table, found) if found else None)

    def execute_complete(self, context: Any, event: dict[str, Any]) -> dict[str, Any]:
        """Return what the trigger found.

        Raises:
            AirflowFailException: The trigger met an error that no retry heals.
        """
        if "error" in event:
            raise AirflowFailException(event["error"])
        return event

    def _look(self, context: Any) -> list[NewSnapshot]:
        try:
            table = open_table(self.table, self.options)
            return list(new_snapshots(table, self._cursor(context), limit=self.limit))
        except PaimonStreamError as error:
            if error.retriable:
                raise
            raise AirflowFailException(str(error)) from error

    def _cursor(self, context: Any) -> str | None:
        if context["dag_run"].logical_date is None:
            # Airflow finds the former run by this date.
            raise AirflowFailException(
                f"{self.task_id}: this run has no logical date, by which Airflow finds the run before it: "
                "give the Dag a schedule such as '@continuous', or a logical date to a run that is triggered by hand"
            )
        instance = context["ti"]
        last = instance.xcom_pull(
            task_ids=self.task_id, map_indexes=instance.map_index, include_prior_dates=True, default=None
        )
        if last is not None and last["table"] != self.table:
            raise AirflowFailException(
                f"{self.task_id}: the last run followed {last['table']}, not {self.table}: give another task_id"
            )
        return None if last is None else str(last["cursor"])
