"""What of one snapshot is read, kept while limits cut it into several plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pypaimon.streaming.metadata.manifest_tables import BOUNDS, STATISTICS
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.model.position import Unit
from pypaimon.streaming.options.stream_options import Limits
from pypaimon.streaming.planning.parts import Parts
from pypaimon.streaming.planning.splits import DeletionFiles, Files
from pypaimon.streaming.planning.units import Units

_Mask = npt.NDArray[np.bool_]
_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Prepared:
    """The entries of a snapshot in canonical order, and which of them are read.

    Attributes:
        units: All entries, for places in a bucket count those that are not read too; without statistics.
        kept: Which are read.
        deletions: Where deletion vectors of the snapshot are; None if they do not count.
        deletions_before: Those of the snapshot before, where files of it are read too.
        of_range: They are those of a range, which settings may order differently.
        files: Those that are read, as files, where they were prepared together with others; else None.
    """

    units: Units
    kept: _Mask
    deletions: DeletionFiles | None = None
    deletions_before: DeletionFiles | None = None
    of_range: bool = False
    files: Files | None = None

    def part(self, after: Unit | None, limits: Limits) -> tuple[_Numbers, Unit | None]:
        """The entries behind a unit that was handed out, as far as limits allow; see `Parts.part`.

        Raises:
            TableChangedError: Another file is in the place of that unit.
        """
        if after is not None:
            (self.units.check_in_place if self.of_range else self.units.check_holds)(after, self.kept)
        return self._parts.part(after, limits)

    def files_of(self, chosen: _Numbers) -> Files | None:
        """The files of a part; None where they are not made yet."""
        if self.files is None or not len(chosen):
            return None
        first = int(np.count_nonzero(self.kept[: chosen[0]]))
        return self.files.part(first, first + len(chosen))

    @cached_property
    def _parts(self) -> Parts:
        return Parts(self.units, self.kept)


@dataclass(slots=True)
class LastPrepared:
    """What was prepared last; planners of one stream with different limits may share it.

    Attributes:
        held: What it was made from, and what it is; None: nothing is kept.
    """

    held: tuple[object, Prepared] | None = None


class Preparation:
    """Holds what was prepared of the snapshot that is being handed out in parts: of one, until its last part.

    Planning it anew for each part would read all its manifests as often.

    Args:
        limits: Of the stream.
        made_for: Tells what is read with other settings of the same stream.
        last: Where it is held.
    """

    def __init__(self, limits: Limits, made_for: object, last: LastPrepared) -> None:
        self._limits = limits
        self._made_for = made_for
        self._last = last

    def part(
        self, snapshot: Snapshot, scan: str, after: Unit | None, prepare: Callable[[], Prepared]
    ) -> tuple[Prepared, _Numbers, Unit | None]:
        """The next part of a snapshot: what was prepared, which entries of it, and the last unit if more are left.

        Args:
            snapshot: The snapshot.
            scan: What of it is read.
            after: Last unit that was handed out.
            prepare: Prepares it, if that is not at hand.
        """
        key = (snapshot.id, snapshot.fingerprint, scan, self._made_for)
        held = self._last.held
        prepared = held[1] if held is not None and held[0] == key else prepare()
        chosen, last = prepared.part(after, self._limits)
        more = last is not None and self._limits.until is None
        self._last.held = (key, prepared) if more else None
        return prepared, chosen, last


def without_statistics(units: Units, needs_bounds: bool) -> Units:
    """The same units, whose entries have been pruned by their statistics; see `EntrySelection.needs_bounds`."""
    left_out = {*STATISTICS} - ({*BOUNDS} if needs_bounds else set())
    return units.of(units.entries.select([name for name in units.entries.schema.names if name not in left_out]))
