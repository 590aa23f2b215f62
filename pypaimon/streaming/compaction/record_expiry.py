"""`RecordExpiry`: records that compactions of a primary-key table drop after some time.

As Java's `RecordLevelExpire`. Java's rules: docs/java-semantics.md#compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.compaction.live_files import LiveFile
from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.filtering.statistics import EncodedStats
from pypaimon.streaming.merge.level_changes import NO_ROW_LEVEL
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.data_types import root
from pypaimon.streaming.model.system_columns import LEVEL
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.paimon.internals import DataField, TableSchema

_TIME, _FIELD = option_keys.RECORD_LEVEL_EXPIRE_TIME, option_keys.RECORD_LEVEL_TIME_FIELD
_TYPES = ("INT", "BIGINT", "TIMESTAMP", "TIMESTAMP_LTZ")
_LEAST_MILLIS = 10**12
"""A BIGINT from here on is milliseconds; below, seconds."""
_PER_MILLI = {"us": 1_000, "ns": 1_000_000}

Seconds = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RecordExpiry:
    """How long the records of a table are kept."""

    field: DataField
    seconds: int  # Seconds for which a record is kept after that time

    @staticmethod
    def of(table: PaimonTable) -> RecordExpiry | None:
        """The expiry of a table's records; None: they do not expire. Raises UnsupportedTableError if the option does
        not name a column of times.
        """
        options = table.options
        millis = _TIME.of(options) if table.is_primary_key_table else None
        if millis is None:
            return None
        name = _FIELD.of(options)
        field = next((field for field in table.fields if field.name == name), None)
        if field is None:
            what = "is not set" if name is None else f"= {name!r} is not a column of the table"
            raise UnsupportedTableError(f"'{_TIME}' is set, but '{_FIELD}' {what}.")
        if root(field.type) not in _TYPES:
            raise UnsupportedTableError(
                f"'{_FIELD}' = {name!r} is {field.type}; expected INT (seconds), BIGINT or a timestamp."
            )
        return RecordExpiry(field, millis // 1000)

    def at(self, now: datetime) -> Expired:
        return Expired(self.field, int(now.timestamp() // 1) - self.seconds)


@dataclass(frozen=True, slots=True)
class Expired:
    """The records that have expired at one time."""

    field: DataField  # The column with the time of a record. A record without a time is kept.
    oldest: int  # The oldest time that is kept, in seconds since 1970

    def in_file(self, file: LiveFile, schema: Callable[[int], TableSchema]) -> bool:
        """Whether a file holds such records, according to its statistics."""
        record = file.stored.file
        fields = schema(int(file.read.schema_id)).fields
        ids = {field.name: field.id for field in fields}
        names = list(ids) if record["_VALUE_STATS_COLS"] is None else record["_VALUE_STATS_COLS"]
        least, greatest, nulls = (
            record["_VALUE_STATS"][name] for name in ("_MIN_VALUES", "_MAX_VALUES", "_NULL_COUNTS")
        )
        stats = EncodedStats(
            minimum=pa.array([least], pa.binary()),
            maximum=pa.array([greatest], pa.binary()),
            nulls=pa.array([nulls or []], pa.list_(pa.int64())),
            rows=pa.array([int(file.read.row_count)], pa.int64()),
            arity=len(names),
            slots={ids[name]: slot for slot, name in enumerate(names) if name in ids},
            fields={field.id: field for field in fields},
        ).column(self.field)
        return stats is not None and stats.minimum is not None and bool(self._mask(stats.minimum)[0])

    def dropped(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches without such records. Empty batches are left out."""
        for batch in batches:
            expired = self._mask(batch.column(self.field.name))
            kept = batch.filter(pa.array(~expired)) if expired.any() else batch
            if kept.num_rows:
                yield kept

    def passed_over(self, batches: Iterable[pa.RecordBatch], *, above: int, drop: bool) -> Iterator[pa.RecordBatch]:
        """Batches (with `_LEVEL`) in which such records above a level are on `NO_ROW_LEVEL`. Empty batches are left
        out.

        They are not dropped, because the records that replace them must mark their places.
        """
        for batch in batches:
            expired = self._mask(batch.column(self.field.name))
            if expired.any():
                levels = batch.column(LEVEL)
                higher = pc.greater(levels, above).to_numpy(zero_copy_only=False)
                levels = pc.if_else(pa.array(expired & higher), pa.scalar(NO_ROW_LEVEL, pa.int32()), levels)
                batch = batch.set_column(batch.schema.get_field_index(LEVEL), LEVEL, levels)
                if drop:
                    batch = batch.filter(pa.array(higher | ~expired))
            if batch.num_rows:
                yield batch

    def _mask(self, times: pa.Array) -> npt.NDArray[np.bool_]:
        known = times.is_valid().to_numpy(zero_copy_only=False)
        found: npt.NDArray[np.bool_] = known & (_seconds(times) < self.oldest)
        return found


def _seconds(times: pa.Array) -> Seconds:
    """Times in seconds since 1970, rounded as Java does: to milliseconds downwards, then to seconds towards 1970."""
    numbers: Seconds = times.cast(pa.int64()).fill_null(0).to_numpy()
    if not pa.types.is_timestamp(times.type):
        millis = pa.types.is_int64(times.type) & (numbers >= _LEAST_MILLIS)
        return np.where(millis, numbers // 1000, numbers)
    if times.type.unit == "s":
        return numbers
    millis = numbers // _PER_MILLI.get(times.type.unit, 1)
    return np.where(millis < 0, -(-millis // 1000), millis // 1000)
