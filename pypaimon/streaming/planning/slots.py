"""Which files belong to which slots of a group."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.options.slot_rule import DividedBy, SlotRule, SlotSet
from pypaimon.streaming.planning.name_hashes import name_hashes
from pypaimon.streaming.planning.partition_texts import texts_of


def slots_of(entries: pa.Table, rule: SlotRule) -> npt.NDArray[np.int64]:
    """The slots of entries (rows of `ENTRY_SCHEMA`)."""
    if rule.by is DividedBy.FILE:
        return np.abs(np.fmod(name_hashes(entries["file_name"]), rule.count))
    buckets = entries["bucket"].to_numpy().astype(np.int64)
    if rule.by is DividedBy.PARTITION_AND_BUCKET and len(buckets):
        encoded = pc.dictionary_encode(entries["partition"].combine_chunks())
        offsets = [rule.offset(text) for text in texts_of(encoded.dictionary, rule.partition_fields)]
        buckets = buckets + np.array(offsets, dtype=np.int64)[encoded.indices.to_numpy()]
    slots: npt.NDArray[np.int64] = np.mod(buckets, rule.count)
    return slots


def in_slots(entries: pa.Table, slots: SlotSet) -> npt.NDArray[np.bool_]:
    """Which entries are in one of them."""
    return np.isin(slots_of(entries, slots.rule), sorted(slots.numbers))
