"""Keys get their buckets as Java's assigners give them, however they are divided into batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.writing.dynamic_buckets import BucketRules, KeyBuckets

HASHES = st.lists(st.integers(-12, 12) | st.sampled_from([-(2**31), 2**31 - 1]), max_size=40)


class Assigner:
    """One of Java's assigners, key by key."""

    def __init__(self, rules: BucketRules, lane: int) -> None:
        self.rules, self.lane = rules, lane
        self.keys: dict[int, int] = {}
        self.counts: dict[int, int] = {}

    def assign(self, key: int) -> int | None:
        if key in self.keys:
            return self.keys[key]
        room = [bucket for bucket, count in sorted(self.counts.items()) if count < self.rules.target]
        most = (1 << 15) - 1 if self.rules.most is None else self.rules.most
        new = [bucket for bucket in range(self.lane, most, self.rules.lanes) if bucket not in self.counts]
        if not room and not new:
            return None
        bucket = (room or new)[0]
        self.counts[bucket] = self.counts.get(bucket, 0) + 1
        self.keys[key] = bucket
        return bucket


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(HASHES, max_size=6),
    target=st.integers(1, 6),
    lanes=st.integers(1, 4),
    most=st.none() | st.integers(4, 6),
    again=st.sets(st.integers(0, 5)),
)
def test_as_java_assigns(batches: list[list[int]], target: int, lanes: int, most: int | None, again: set[int]) -> None:
    rules = BucketRules(target, lanes, most)
    ours = KeyBuckets(rules)
    java = [Assigner(rules, lane) for lane in range(lanes)]
    of_key: dict[int, int] = {}
    for number, batch in enumerate(batches):
        if number in again:
            # As a writer that begins anew reads them.
            ours = KeyBuckets(rules, [(bucket, ours.hashes_of(bucket)) for bucket in sorted(set(of_key.values()))])
        before = dict(of_key)
        found = ours.assign(np.array(batch, np.int32)).tolist()
        for key, bucket in zip(batch, found, strict=True):
            # The remainder has the sign of the hash in Java.
            lane = abs(key) % lanes
            wanted = java[lane].assign(key)
            assert bucket % lanes == lane and bucket == of_key.setdefault(key, bucket)
            if wanted is None:
                java[lane].keys[key] = bucket
                assert bucket in java[lane].counts
            else:
                assert bucket == wanted
        new = {of_key[key] for key in of_key.keys() - before.keys()}
        assert ours.touched == new
        ours.settle()
    for bucket in set(of_key.values()):
        assert ours.hashes_of(bucket).tolist() == sorted(key for key, there in of_key.items() if there == bucket)


def test_the_bucket_that_is_read_last_counts() -> None:
    keys = KeyBuckets(BucketRules(), [(0, np.array([5, 1], np.int32)), (1, np.array([5], np.int32))])
    assert keys.assign(np.array([1, 5], np.int32)).tolist() == [0, 1]
    assert not keys.touched


def test_many_keys_take_little_memory() -> None:
    keys = KeyBuckets(BucketRules(target=50_000))
    source = np.random.default_rng(1)
    for _ in range(40):
        keys.assign(source.integers(-(2**31), 2**31, 5_000).astype(np.int32))
    held = sum(hashes.nbytes + buckets.nbytes for hashes, buckets in keys._runs)
    assert held <= 6 * 40 * 5_000 and len(keys._runs) <= 8


def test_when_all_buckets_are_full() -> None:
    keys = KeyBuckets(BucketRules(target=1))
    keys.assign(np.arange(2**15 - 1, dtype=np.int32))
    with pytest.raises(StreamConfigError, match=r"'dynamic-bucket\.target-row-num', which is 1"):
        keys.assign(np.array([-1], np.int32))


@pytest.mark.parametrize(
    ("options", "rules"),
    [
        ({}, BucketRules(2_000_000, 1, None)),
        ({"target-row-num": "7", "initial-buckets": "3", "max-buckets": "-1"}, BucketRules(7, 3, None)),
        ({"initial-buckets": "3", "max-buckets": "2"}, BucketRules(2_000_000, 2, 2)),
        ({"max-buckets": "0"}, "Could not parse value '0' .* from 1 to 32767"),
        ({"max-buckets": "32768"}, "Could not parse value '32768' .* from 1 to 32767"),
        ({"target-row-num": "0"}, "target-row-num"),
        ({"initial-buckets": "x"}, "initial-buckets"),
    ],
)
def test_options(options: dict[str, str], rules: Any) -> None:
    named = {f"dynamic-bucket.{name}": value for name, value in options.items()}
    if isinstance(rules, BucketRules):
        assert BucketRules.of(named) == rules
        return
    with pytest.raises(StreamConfigError, match=rules):
        BucketRules.of(named)
