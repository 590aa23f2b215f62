"""`merged_manifests`: small manifests into large ones, so that the cost of a commit does not grow with the table's age.

The rules are those of Java's `ManifestFileMerger`. *Full merge*: once the manifests that are small or hold deletes
exceed a total size, all of them are merged with those that hold what they delete, and no DELETE is left. *Minor merge*
otherwise: consecutive manifests are packed until they reach the size of a full one, and the rest is packed once it
consists of many. A minor merge drops a DELETE only together with its ADD: if the ADD is not among the merged entries,
it is in an earlier manifest, and the DELETE must stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import pyarrow as pa

from pypaimon.streaming.commit.changes import AvroRecord, FileChange, Identity, changes_of
from pypaimon.streaming.commit.manifests import ManifestOptions, ManifestWriter, NewFiles
from pypaimon.streaming.formats import avro_container
from pypaimon.streaming.formats.binary_row import decode
from pypaimon.streaming.formats.binary_row_encoding import plain_row
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.manifest_tables import list_parser
from pypaimon.streaming.metadata.manifests import ManifestReader
from pypaimon.streaming.paimon.internals import DataField

Group = list[AvroRecord]


def merged_manifests(
    reader: ManifestReader, writer: ManifestWriter, new: NewFiles, manifests: Sequence[AvroRecord]
) -> list[AvroRecord]:
    """Merge the manifests of a table if they are due.

    Returns:
        Records of manifests that hold the same live files.
    """
    full = full_merge(manifests, writer.options)
    if full is not None:
        return _merge_all(reader, writer, new, manifests, full)
    found: list[AvroRecord] = []
    for group in minor_merge(manifests, writer.options):
        found += group if len(group) == 1 else _merge_group(reader, writer, new, group)
    return found


def full_merge(manifests: Sequence[AvroRecord], options: ManifestOptions) -> set[str] | None:
    """Names of the manifests that a full merge rewrites in any case; None: no full merge is due."""
    changing = [each for each in manifests if each["_NUM_DELETED_FILES"] or each["_FILE_SIZE"] < options.target_size]
    if not changing or sum(each["_FILE_SIZE"] for each in changing) < options.full_merge_size:
        return None
    return {each["_FILE_NAME"] for each in changing}


def minor_merge(manifests: Sequence[AvroRecord], options: ManifestOptions) -> list[Group]:
    """The manifests in groups, each of which becomes one manifest (a group of one stays as it is)."""
    groups: list[Group] = []
    group: Group = []
    size = 0
    for each in manifests:
        group.append(each)
        size += each["_FILE_SIZE"]
        if size >= options.target_size:
            groups.append(group)
            group, size = [], 0
    if group and len(group) >= options.merge_min_count:
        return [*groups, group]
    return [*groups, *([each] for each in group)]


def merged_changes(changes: Iterable[FileChange]) -> list[FileChange]:
    """Changes without those that undo each other. A DELETE whose ADD is not among them stays."""
    found: dict[Identity, FileChange] = {}
    for each in changes:
        identity = each.identity
        if each.kind == EntryKind.DELETE and identity in found:
            del found[identity]
        else:
            found[identity] = each
    return list(found.values())


def _merge_group(reader: ManifestReader, writer: ManifestWriter, new: NewFiles, group: Group) -> list[AvroRecord]:
    if not any(each["_NUM_DELETED_FILES"] for each in group) and any(each["_NUM_ADDED_FILES"] for each in group):
        blocks = _stored_entries(reader, writer, group)
        if blocks is not None:
            return writer.copied(new, blocks, group)
    return writer.manifests(new, merged_changes(changes_of(reader.entries(_table(group)))))


def _stored_entries(reader: ManifestReader, writer: ManifestWriter, group: Group) -> list[tuple[int, bytes]] | None:
    """The encoded entries, if all of them are encoded as `writer` would encode them; otherwise None."""
    try:
        containers = [avro_container.parse(data) for data in reader.stored([each["_FILE_NAME"] for each in group])]
    except ValueError:
        # Decoding them reports what is damaged.
        return None
    counts = (each["_NUM_ADDED_FILES"] for each in group)
    if any(
        each.schema != writer.entry_schema or each.count != count
        for each, count in zip(containers, counts, strict=True)
    ):
        return None
    return [block for each in containers for block in each.blocks]


def _merge_all(
    reader: ManifestReader, writer: ManifestWriter, new: NewFiles, manifests: Sequence[AvroRecord], changing: set[str]
) -> list[AvroRecord]:
    rewritten = [each for each in manifests if each["_FILE_NAME"] in changing]
    changes = merged_changes(changes_of(reader.entries(_table(rewritten))))
    deleted = {each.identity: each for each in changes if each.kind == EntryKind.DELETE}
    others = [each for each in manifests if each["_FILE_NAME"] not in changing]
    partitions = {each.partition for each in deleted.values()}
    searched = {each["_FILE_NAME"] for each in which_may_hold(others, partitions, writer.partition_fields)}
    kept: list[AvroRecord] = []
    for each in others:
        # A full manifest without deletes stays, unless it holds a file that others delete.
        inside = changes_of(reader.entries(_table([each]))) if each["_FILE_NAME"] in searched else []
        if any(entry.identity in deleted for entry in inside):
            changes += inside
        else:
            kept.append(each)
    live = [each for each in changes if each.kind == EntryKind.ADD and each.identity not in deleted]
    return [*kept, *writer.manifests(new, live)]


def which_may_hold(
    manifests: Iterable[AvroRecord], partitions: Collection[bytes], fields: Sequence[DataField]
) -> list[AvroRecord]:
    """The manifests whose statistics allow entries of some partitions."""
    # pypaimon serialises bounds differently from Java's rows, and without nanoseconds.
    wanted = {plain_row(each, fields) for each in partitions}

    def may_hold(stats: AvroRecord) -> bool:
        # Equal bounds mean a single partition only if there are no nulls, and if they are bounds at all.
        least = stats["_MIN_VALUES"]
        counts = stats["_NULL_COUNTS"]
        no_nulls = not fields or (bool(counts) and all(count == 0 for count in counts))
        only_one = least == stats["_MAX_VALUES"] and no_nulls
        only_one = only_one and None not in decode(least, fields)
        return bool(wanted) and (not only_one or plain_row(stats["_MIN_VALUES"], fields) in wanted)

    return [each for each in manifests if may_hold(each["_PARTITION_STATS"])]


def _table(manifests: Sequence[AvroRecord]) -> pa.Table:
    return list_parser().flattened([dict(each) for each in manifests])
