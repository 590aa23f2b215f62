"""`TableState`: what a table holds at a snapshot, as far as commits need to know it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.commit.changes import APPEND, OVERWRITE, AvroRecord, FileChange, changes_of
from pypaimon.streaming.commit.manifests import which_may_hold
from pypaimon.streaming.filtering.partition_spec import PartitionSpec
from pypaimon.streaming.formats.binary_row import decode
from pypaimon.streaming.metadata.index_manifests import index_records
from pypaimon.streaming.metadata.manifest_tables import list_parser
from pypaimon.streaming.metadata.manifests import live
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.paimon.internals import DataField


class TableState:
    """The state that a commit follows. Each part is read when it is asked for, once."""

    def __init__(self, directory: TableDirectory, snapshot: Snapshot | None) -> None:
        self.directory = directory
        self.snapshot = snapshot
        # Not `cached_property`: up to Python 3.11 a thread that computes one blocks all others.
        self._manifests: list[AvroRecord] | None = None
        self._index: Sequence[AvroRecord] | None = None

    @property
    def partition_fields(self) -> list[DataField]:
        schema = self.directory.table.table_schema
        fields = {field.name: field for field in schema.fields}
        return [fields[name] for name in schema.partition_keys]

    @property
    def manifests(self) -> list[AvroRecord]:
        """Records of the manifest lists, base before delta. Two requests unless cached."""
        if self._manifests is None:
            lists = () if self.snapshot is None else self.snapshot.state_lists
            self._manifests = [*self.directory.manifests.list_records(lists)]
        return self._manifests

    @property
    def index(self) -> Sequence[AvroRecord]:
        """Records of the index manifest. One request if it exists."""
        if self._index is None:
            name = self.snapshot and self.snapshot.index_manifest
            path = f"{self.directory.table.table_path.rstrip('/')}/manifest/{name}"
            self._index = self.directory.store.parse(path, index_records) if name else ()
        return self._index

    def files(self, partitions: Collection[bytes] | None) -> list[FileChange]:
        """Live files of partitions, which are given as serialised rows; None: of all partitions."""
        if partitions is not None:
            wanted = which_may_hold(self.manifests, partitions, self.partition_fields)
            return self._live(wanted, _inside(partitions))
        return self._live(self.manifests, None)

    def files_since(self, known: int | None, partitions: Collection[bytes]) -> list[FileChange]:
        """Files that show the number of buckets of partitions, as far as a snapshot does not show it already.

        An OVERWRITE may change that number, and an APPEND may bring the first files of a partition.

        Args:
            known: Id of the snapshot at which the numbers are known, 0 for none; None: they are not known.
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
            # A manifest list has expired with its snapshot meanwhile.
            return self.files(partitions)

    def partitions(self, spec: PartitionSpec) -> set[bytes]:
        """Serialised rows of the partitions that have files and match a spec."""
        return self.matching({each.partition for each in self.files(None)}, spec)

    def matching(self, rows: Collection[bytes], spec: PartitionSpec) -> set[bytes]:
        found = pa.array(list(rows), pa.binary())
        return set(found.filter(spec.matches(found, self.partition_fields)).to_pylist())

    def values_of(self, row: bytes) -> dict[str, Any]:
        fields = self.partition_fields
        return dict(zip((each.name for each in fields), decode(row, fields), strict=True))

    def _live(self, manifests: Sequence[AvroRecord], kept: Callable[[pa.Table], pa.Table] | None) -> list[FileChange]:
        if not manifests:
            return []
        table = list_parser().flattened([dict(each) for each in manifests])
        return changes_of(live(self.directory.manifests.entries(table, kept=kept)))


def _inside(partitions: Collection[bytes]) -> Callable[[pa.Table], pa.Table]:
    rows = pa.array(list(partitions), pa.binary())
    return lambda found: found.filter(pc.is_in(found["partition"], value_set=rows))
