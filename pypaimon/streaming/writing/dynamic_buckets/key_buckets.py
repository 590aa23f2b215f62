"""`KeyBuckets`: the buckets of the keys of one partition, by their hashes. Pure, and without a loop over rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions

Hashes = npt.NDArray[np.int32]
Buckets = npt.NDArray[np.int16]

_MOST_BUCKETS = (1 << 15) - 1
"""Java stores bucket numbers in 16 bits and does not use the greatest one."""
_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class BucketRules:
    """Limits of keys and buckets.

    Attributes:
        target: Number of keys of a full bucket (`dynamic-bucket.target-row-num`).
        lanes: Number of buckets that are filled at the same time, each with the keys whose hash has the same remainder
            (`dynamic-bucket.initial-buckets`). Java has an assigner for each of them.
        most: Number of buckets of a partition (`dynamic-bucket.max-buckets`); None: not limited.
    """

    target: int = 2_000_000
    lanes: int = 1
    most: int | None = None

    @staticmethod
    def of(options: TableOptions) -> BucketRules:
        """The rules that a table's options give.

        Raises:
            StreamConfigError: An option cannot be read, or is out of range.
        """
        target = option_keys.DYNAMIC_BUCKET_TARGET_ROW_NUM.of(options)
        limit = option_keys.DYNAMIC_BUCKET_MAX_BUCKETS
        most = None if limit.text(options) == "-1" else limit.of(options)
        lanes = option_keys.DYNAMIC_BUCKET_INITIAL_BUCKETS.of(options)
        return BucketRules(target, lanes if most is None else min(lanes, most), most)


class KeyBuckets:
    """The buckets of the keys of a partition, in 6 bytes for each key. Not for several threads.

    Keys of one hash are in the same bucket. New keys fill the buckets that have room, the lowest one first, then new
    buckets. If no further bucket is allowed, they are divided among all by their hashes.

    Args:
        rules: Limits of keys and buckets.
        known: Buckets and the hashes of their keys. If a hash comes twice, the later bucket counts.

    Attributes:
        touched: Buckets that got keys since `settle`.
    """

    def __init__(self, rules: BucketRules, known: Iterable[tuple[int, Hashes]] = ()) -> None:
        self._rules = rules
        self._counts: dict[int, int] = {}
        # Sorted hashes and their buckets. Each run is more than twice as long as the next one, so there are few.
        self._runs: list[tuple[Hashes, Buckets]] = []
        self.touched: set[int] = set()
        given = [(bucket, hashes) for bucket, hashes in known if len(hashes)]
        for bucket, hashes in given:
            self._counts[bucket] = self._counts.get(bucket, 0) + len(hashes)
        if given:
            hashes = np.concatenate([each for _, each in given])
            buckets = np.concatenate([np.full(len(each), bucket, np.int16) for bucket, each in given])
            order = np.argsort(hashes, kind="stable")
            hashes = hashes[order]
            last = np.ones(len(hashes), np.bool_)
            last[:-1] = hashes[1:] != hashes[:-1]
            self._runs.append((hashes[last], buckets[order][last]))

    def assign(self, hashes: Hashes) -> Buckets:
        """The bucket of each key. New keys are assigned one.

        Args:
            hashes: Hashes of the keys, in the order of their rows.

        Raises:
            StreamConfigError: All buckets are full, and the table allows no further one.
        """
        distinct, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        buckets = self._found(distinct)
        new = np.flatnonzero(buckets == _UNKNOWN)
        if len(new):
            self._place(distinct, new[np.argsort(first[new])], buckets)
            self._add(distinct[new], buckets[new])
        assigned: Buckets = buckets[inverse.reshape(-1)]
        return assigned

    def hashes_of(self, bucket: int) -> Hashes:
        found = [hashes[buckets == bucket] for hashes, buckets in self._runs]
        return np.sort(np.concatenate(found)) if found else np.zeros(0, np.int32)

    def settle(self) -> None:
        """The table has recorded all keys, so no bucket is touched."""
        self.touched = set()

    def _found(self, hashes: Hashes) -> Buckets:
        buckets = np.full(len(hashes), _UNKNOWN, np.int16)
        for known, theirs in self._runs:
            at = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            there = known[at] == hashes
            buckets[there] = theirs[at[there]]
        return buckets

    def _place(self, hashes: Hashes, new: npt.NDArray[np.intp], buckets: Buckets) -> None:
        """Fill in the buckets of new keys.

        Args:
            hashes: Hashes of all keys.
            new: Positions of the new ones, in the order of their rows.
            buckets: Buckets of all keys.
        """
        # As Java's `Math.abs(hash % lanes)`: the remainder has the sign of the hash.
        lanes = np.abs(np.fmod(hashes[new].astype(np.int64), self._rules.lanes))
        for lane in np.unique(lanes).tolist():
            rows = new[lanes == lane]
            for bucket, room in self._rooms(lane):
                taken, rows = rows[:room], rows[room:]
                buckets[taken] = bucket
                self._counts[bucket] = self._counts.get(bucket, 0) + len(taken)
                if not len(rows):
                    break
            if len(rows):
                full = np.array(self._of_lane(lane), np.int16)
                buckets[rows] = full[hashes[rows].astype(np.int64) // self._rules.lanes % len(full)]
        self.touched.update(np.unique(buckets[new]).tolist())

    def _rooms(self, lane: int) -> Iterator[tuple[int, int]]:
        """Buckets with room, and how many keys fit: existing ones first, then new ones."""
        for bucket in self._of_lane(lane):
            if self._counts[bucket] < self._rules.target:
                yield bucket, self._rules.target - self._counts[bucket]
        most = _MOST_BUCKETS if self._rules.most is None else self._rules.most
        for bucket in range(lane, most, self._rules.lanes):
            if bucket not in self._counts:
                yield bucket, self._rules.target
        if self._rules.most is None:
            raise StreamConfigError(
                f"All {_MOST_BUCKETS} buckets that a partition can have are full: raise "
                f"'dynamic-bucket.target-row-num', which is {self._rules.target}."
            )

    def _of_lane(self, lane: int) -> list[int]:
        return [bucket for bucket in sorted(self._counts) if bucket % self._rules.lanes == lane]

    def _add(self, hashes: Hashes, buckets: Buckets) -> None:
        """Add keys that are not known yet, sorted by their hashes."""
        self._runs.append((hashes, buckets))
        while len(self._runs) > 1 and len(self._runs[-2][0]) <= 2 * len(self._runs[-1][0]):
            (older, theirs), (newer, ours) = self._runs[-2:]
            merged = np.concatenate([older, newer])
            order = np.argsort(merged, kind="stable")
            self._runs[-2:] = [(merged[order], np.concatenate([theirs, ours])[order])]
