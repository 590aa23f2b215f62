"""For Quix Streams: a source whose position is part of the state of the source."""

from __future__ import annotations

import json
from typing import Any

from pypaimon.streaming.batches.batch import BlockingBatch
from pypaimon.streaming.batches.batch_stream import BlockingBatchStream
from pypaimon.streaming.batches.run_forever import waiting_out
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.lazy_imports import naming_extra
from pypaimon.streaming.model.json_rows import json_columns
from pypaimon.streaming.model.plan import PlanKind
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.orchestrators.snapshot_cursors import refuse_chain, state_at
from pypaimon.streaming.read_builder import StreamReadBuilder
from pypaimon.streaming.targets.changes import GivenKeys, TargetKeys

with naming_extra(__name__, {"quixstreams": "quix"}):
    from quixstreams.sources import StatefulSource

_POSITION = "position"


class PaimonSource(StatefulSource):  # type: ignore[misc, unused-ignore]
    """The rows of a table as messages: its state, then each change, until the builder's end.

    The key of a message is a JSON list, its value the row as JSON, with `_row_kind`; the header `snapshot_id` names
    the snapshot. Delivery is at least once, also with `processing_guarantee="exactly-once"`, because Quix gives sources
    no transactions: after a crash the last plan, usually a snapshot, comes again as a whole.

    Args:
        name: The name of the source, of its state, and of its topic.
        builder: What to read, without a consumer id.
        keys: The key columns; None: the primary key. Rows of an append table have none.
        options: More arguments of `quixstreams.sources.StatefulSource`.

    Raises:
        UnsupportedTableError: It is a chain table.
    """

    def __init__(self, name: str, builder: StreamReadBuilder, keys: GivenKeys = None, **options: Any) -> None:
        refuse_chain(builder.table)
        super().__init__(name, **options)
        self._builder = builder.copy()
        self._keys = TargetKeys(keys)
        self._stream: BlockingBatchStream | None = None

    def setup(self) -> None:
        """Open the stream at the saved position."""
        builder, saved = self._builder.copy(), self.state.get(_POSITION)
        if saved is not None:
            builder.with_start(position=saved)
        self._stream = builder.open_sync()

    def run(self) -> None:
        """Produce the rows, until the stream ends or the application stops."""
        assert self._stream is not None
        with self._stream as stream:
            for batch in waiting_out(stream):
                if batch.is_first:
                    self._begin(batch)
                self._produce(batch)
                # The position is in another topic, and must not arrive there before the rows do.
                self.flush()
                if batch.is_last:
                    self._save(batch.plan_after)

    def stop(self) -> None:
        """Stop after the current plan."""
        super().stop()
        if self._stream is not None:
            self._stream.stop()

    def _begin(self, batch: BlockingBatch) -> None:
        saved, state = self.state.get(_POSITION), state_at(batch.plan_after, batch.snapshot_id)
        if batch.begins_state and saved is not None and Position.from_json(saved) != state:
            raise StreamConfigError(
                f"{self.name}: the stream begins with the state of the table again, and a topic cannot be emptied: "
                "give the source another name, which is another topic"
            )
        if saved is None and (start := batch.plan_before or (state if batch.kind is PlanKind.FULL else None)):
            # A restart repeats this plan. A newer state instead would lack deletes of rows that were sent already.
            self._save(start)

    def _produce(self, batch: BlockingBatch) -> None:
        keys, headers = self._keys.of_batch(batch), {"snapshot_id": str(batch.snapshot_id)}
        for rows in batch.data.to_batches():
            columns = json_columns(rows)
            for values in zip(*columns.values(), strict=True):
                row = dict(zip(columns, values, strict=True))
                key = json.dumps([row[name] for name in keys]) if keys else None
                message = self.serialize(value=row, headers=headers)
                self.produce(message.value, key, message.headers)

    def _save(self, position: Position) -> None:
        self.state.set(_POSITION, position.to_json())
        self.flush()
