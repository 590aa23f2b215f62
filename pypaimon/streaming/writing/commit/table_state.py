"""`TableState`: what the table holds at a snapshot, as far as a commit has to know it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.filtering.partition_spec import PartitionSpec
from pypaimon.streaming.formats.binary_row import decode
from pypaimon.streaming.metadata.index_manifests import index_records
from pypaimon.streaming.metadata.manifest_tables import list_parser
from pypaimon.streaming.metadata.manifests import live
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.writing.commit.file_changes import APPEND, OVERWRITE, FileChange, Record
from pypaimon.streaming.writing.commit.manifest_merge import which_may_hold
from pypaimon.streaming.writing.commit.manifest_records import changes_of


class TableState:
    """The state that a commit follows. What is asked for is read once.

    Args:
        directory: The table.
        snapshot: Its latest snapshot; None: it has none.
    """

    def __init__(self, directory: TableDirectory, snapshot: Snapshot | None) -> None:
        self.directory = directory
        self.snapshot = snapshot
        # No `cached_property`: up to Python 3.11 one thread that reads holds up all others.
        self._manifests: list[Record] | None = None
        self._index: Sequence[Record] | None = None

    @property
    def manifests(self) -> list[Record]:
        """Records of the manifest lists: base, then delta. Two requests unless cached."""
        if self._manifests is None:
            lists = self.snapshot and [self.snapshot.base_manifest_list, self.snapshot.delta_manifest_list]
            self._manifests = [*self.directory.manifests.list_records(lists or [])]
        return self._manifests

    @property
    def index(self) -> Sequence[Record]:
        """Records of the index manifest. One request if there is one."""
        if self._index is None:
            name = self.snapshot and self.snapshot.index_manifest
            path = f"{self.directory.table.table_path.rstrip('/')}/manifest/{name}"
            self._index = self.directory.store.parse(path, index_records) if name else ()
        return self._index

    def files(self, partitions: Collection[bytes] | None) -> list[FileChange]:
        """Live files of partitions, told by their serialised rows; None: of all."""
        if partitions is not None:
            fields = self.directory.table.partition_keys_fields
            wanted = which_may_hold(self.manifests, partitions, fields)
            return self._live(wanted, _inside(partitions))
        return self._live(self.manifests, None)

    def files_since(self, known: int | None, partitions: Collection[bytes]) -> list[FileChange]:
        """Files that show into how many buckets partitions are divided, unless that is known from a snapshot.

        An OVERWRITE may change the number of buckets of a partition, and an APPEND may bring its first files.

        Args:
            known: Id of that snapshot, 0 for none; None: nothing is known.
            partitions: Serialised rows.
        """
        if known is None:
            return self.files(partitions)
        latest = 0 if self.snapshot is None else self.snapshot.id
        lists = []
        for number in range(known + 1, latest + 1):
            each = self.directory.snapshots.try_get(number)
            if each is None or each.commit_kind == OVERWRITE:
                return self.files(partitions)
            if each.commit_kind == APPEND:
                lists.append(each.delta_manifest_list)
        if not lists:
            return []
        try:
            manifests = pa.concat_tables(self.directory.manifests.manifest_lists(lists))
            return changes_of(self.directory.manifests.entries(manifests, kept=_inside(partitions)))
        except FileNotFoundError:
            # It has expired with its snapshot meanwhile.
            return self.files(partitions)

    def partitions(self, spec: PartitionSpec) -> set[bytes]:
        """Serialised rows of the partitions that have files and the values of a spec."""
        return self.matching({each.partition for each in self.files(None)}, spec)

    def matching(self, rows: Collection[bytes], spec: PartitionSpec) -> set[bytes]:
        """Those of serialised rows of partitions that have the values of a spec."""
        found = pa.array(list(rows), pa.binary())
        return set(found.filter(spec.matches(found, self.directory.table.partition_keys_fields)).to_pylist())

    def values_of(self, row: bytes) -> dict[str, Any]:
        """Values by column of a serialised partition row."""
        fields = self.directory.table.partition_keys_fields
        return dict(zip((each.name for each in fields), decode(row, fields), strict=True))

    def _live(self, manifests: Sequence[Record], kept: Callable[[pa.Table], pa.Table] | None) -> list[FileChange]:
        if not manifests:
            return []
        table = list_parser().flattened([dict(each) for each in manifests])
        return changes_of(live(self.directory.manifests.entries(table, kept=kept)))


def _inside(partitions: Collection[bytes]) -> Callable[[pa.Table], pa.Table]:
    """Takes those of entries that lie in partitions."""
    rows = pa.array(list(partitions), pa.binary())
    return lambda found: found.filter(pc.is_in(found["partition"], value_set=rows))
