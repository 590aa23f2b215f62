"""In which order splits of one plan are read."""

from __future__ import annotations

from collections.abc import Sequence

from pypaimon.streaming.model.plan import SplitMode, StreamSplit


def in_reading_order(splits: Sequence[StreamSplit]) -> Sequence[StreamSplit]:
    """As they are; of an OVERWRITE all that is retracted first, then all that came.

    A key may lie in another bucket afterwards, where the number of buckets has changed or they are dynamic. Bucket by
    bucket it would be taken away in one after it was brought in another.
    """
    if any(split.mode is not SplitMode.OVERWRITE for split in splits) or not any(split.retracts for split in splits):
        return splits
    retracted = [split.without_files() for split in splits if split.retracts]
    return [*retracted, *(split.without_before_files() for split in splits)]
