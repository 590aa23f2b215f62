"""`range_packs`: which data files of data evolution become one, by their row ids (`packs_of_weight`).

Java's rules: docs/java-semantics.md#compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.files.row_id_groups import RowIdGroup, files_of_vectors, owners
from pypaimon.streaming.paimon.internals import DataField, TableSchema, VectorType

Pack = list[RowIdGroup]
"""Groups of consecutive row ids whose data files become one file."""


def is_as_declared(
    group: RowIdGroup,
    inside: Sequence[DataField],
    apart: Sequence[DataField],
    schema_of: Callable[[int], TableSchema],
) -> bool:
    """Whether each column is where the options of the table say: `inside` data files, or `apart` from them.

    An option that was set or removed later leaves columns in the other kind of file. There they would be lost, or
    replaced by older values, if the data files were merged.
    """
    if any(files_of_vectors(field, group, schema_of) for field in inside):
        return False
    vectors = [field for field in apart if isinstance(field.type, VectorType)]
    return all(files_of_vectors(field, group, schema_of) for field in vectors if owners(group, [field], schema_of))


def range_packs(
    groups: Iterable[RowIdGroup],
    options: CompactionOptions,
    *,
    full: bool,
    is_merged: Callable[[RowIdGroup], bool],
) -> Iterator[tuple[Pack, bool]]:
    """All packs of a partition, in the order of row ids, and whether each is due.

    A pack is due if its groups have `min_files` together, or two if `full`: files of small ranges, or files of columns
    of one range. It is closed once it is larger than a file should be, and at gaps between row ids. A larger group is
    a pack of its own.

    Args:
        groups: As `row_id_groups` returns them.
        is_merged: Whether the data files of a group may be merged. Otherwise it is left out.
    """
    worth = 2 if full else max(2, options.min_files)
    merged = (group for group in groups if group.files and is_merged(group))
    for pack in packs_of_weight(merged, options.target_bytes, lambda group: _weight(group, options)):
        yield pack, _files(pack) >= worth


def packs_of_weight(groups: Iterable[RowIdGroup], most: int, weigh: Callable[[RowIdGroup], int]) -> Iterator[Pack]:
    """Packs of groups in the order of row ids: each ends once it weighs more than `most`, and at gaps between row ids.
    A group that alone weighs more is a pack of its own.
    """
    pack: Pack = []
    weight = 0
    for group in groups:
        its_own = weigh(group)
        if pack and (pack[-1].end != group.first_row_id or its_own > most):
            yield pack
            pack, weight = [], 0
        pack.append(group)
        weight += its_own
        if weight > most:
            yield pack
            pack, weight = [], 0
    if pack:
        yield pack


def _weight(group: RowIdGroup, options: CompactionOptions) -> int:
    return sum(max(int(file.file_size), options.open_bytes) for file in group.files)


def _files(pack: Pack) -> int:
    return sum(len(group.files) for group in pack)
