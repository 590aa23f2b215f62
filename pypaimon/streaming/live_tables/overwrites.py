"""`Overwrite`: what an OVERWRITE snapshot brings counts over what it takes away."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.batches.batch import BlockingBatch
from pypaimon.streaming.model.plan import SplitMode

_SETS = pa.array(["+I", "+U"])
_NUMBER = "_paimon_number"


class Overwrite:
    """The batches of one snapshot in an order in which the last change of a key holds.

    They come bucket by bucket, and a key may be taken away in one after it was brought in another: that of a table
    whose number of buckets has changed, or whose buckets are dynamic. The keys of rows that are brought are kept.
    """

    def __init__(self) -> None:
        self._brought: list[pa.Table] = []

    def in_order(self, batch: BlockingBatch) -> BlockingBatch:
        """A batch without rows that are taken away and were brought until now; those that it brings come last."""
        if not any(split.mode is SplitMode.OVERWRITE for split in batch._chunk.plan.splits()[:1]):
            return batch
        keys = batch.schema.primary_keys
        brings = pc.is_in(batch.kinds, _SETS)
        brought, taken = batch.data.filter(brings), batch.data.filter(pc.invert(brings))
        self._brought.append(brought.select(keys))
        if taken.num_rows:
            taken = self._left(taken, keys)
        return BlockingBatch(replace(batch._chunk, data=pa.concat_tables([taken, brought])), lambda _: None)

    def _left(self, taken: pa.Table, keys: list[str]) -> pa.Table:
        """Those whose keys were not brought."""
        numbered = taken.select(keys).append_column(_NUMBER, pa.array(range(taken.num_rows), pa.int64()))
        brought = [each.append_column(_NUMBER, pa.nulls(each.num_rows, pa.int64())) for each in self._brought]
        # A key that was brought has a null among its numbers.
        counts = pa.concat_tables([numbered, *brought]).group_by(keys)
        found = counts.aggregate([(_NUMBER, "max", pc.ScalarAggregateOptions(skip_nulls=False))])[f"{_NUMBER}_max"]
        return taken.take(found.drop_null().sort())
