"""How much one micro-batch takes: Paimon's and Spark's limits, several at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pypaimon.spark.options.source_options import Admission
from pypaimon.spark.spark_versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    ReadMinRows,
)

if TYPE_CHECKING:
    from pypaimon.streaming.model.plan import Plan
    from pypaimon.streaming.options.stream_options import Limits


@dataclass(frozen=True, slots=True)
class Size:
    """What plans hold."""

    files: int = 0
    bytes: int = 0
    rows: int = 0

    @staticmethod
    def of(plans: Iterable[Plan]) -> Size:
        files = [file for plan in plans for split in plan.splits() for file in (*split.before_files, *split.files)]
        return Size(len(files), sum(file.file_size for file in files), sum(file.row_count for file in files))

    def plus(self, other: Size) -> Size:
        """Both together."""
        return Size(self.files + other.files, self.bytes + other.bytes, self.rows + other.rows)


UNLIMITED = Admission()


def default_limit(admission: Admission) -> ReadLimit:
    """What stands for the limits in Spark, which knows one kind at a time; it is given back with each request."""
    if admission.max_rows is not None:
        return ReadMaxRows(admission.max_rows)
    if admission.max_files is not None:
        return ReadMaxFiles(admission.max_files)
    if admission.max_bytes is not None:
        return ReadMaxBytes(admission.max_bytes)
    if admission.min_rows is not None:
        return ReadMinRows(admission.min_rows)
    return ReadAllAvailable()


def requested(limit: ReadLimit | None, admission: Admission) -> Admission:
    """The limits that hold for a request: all of them, or none where Spark asks for everything (`Trigger.Once`)."""
    return UNLIMITED if limit is None or isinstance(limit, ReadAllAvailable) else admission


def remaining(admission: Admission, taken: Size) -> Limits | None:
    """The limits of the next plan of a batch; None if the batch is full."""
    rows, size, files = (
        None if most is None else most - so_far
        for most, so_far in (
            (admission.max_rows, taken.rows),
            (admission.max_bytes, taken.bytes),
            (admission.max_files, taken.files),
        )
    )
    if any(rest is not None and rest <= 0 for rest in (rows, size, files)):
        return None
    from pypaimon.streaming.options.stream_options import Limits

    return Limits(max_rows=rows, max_bytes=size, max_splits=files)


def exceeds(admission: Admission, size: Size) -> bool:
    pairs = ((admission.max_rows, size.rows), (admission.max_bytes, size.bytes), (admission.max_files, size.files))
    return any(most is not None and found > most for most, found in pairs)
