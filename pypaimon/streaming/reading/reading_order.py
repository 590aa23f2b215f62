"""In which order splits are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from pypaimon.streaming.model.plan import StreamSplit


def in_reading_order(splits: Sequence[StreamSplit]) -> Sequence[StreamSplit]:
    """As they are; of an OVERWRITE snapshot that may bring keys to other buckets all that is retracted first.

    Bucket by bucket a key would be taken away in one after it was brought in another.
    """
    if not any(_retracts(split) for split in splits):
        return splits
    of_snapshots = (list(group) for _, group in groupby(splits, lambda split: (split.mode, split.snapshot_id)))
    return [split for group in of_snapshots for split in _retracted_first(group)]


def _retracts(split: StreamSplit) -> bool:
    return split.keys_move and split.retracts


def _retracted_first(splits: list[StreamSplit]) -> Iterator[StreamSplit]:
    """Splits of one mode and snapshot."""
    retracting = [split for split in splits if _retracts(split)]
    yield from (split.without_files() for split in retracting)
    for split in splits:
        yield split.without_before_files() if _retracts(split) else split
