"""`merged_manifests`: small manifests into large ones, so that what a commit costs does not grow with the table's age.

The rules are those of Java's `ManifestFileMerger`. *Full*: once the manifests that are small, or hold deletes, have
grown beyond a size, all of them are merged with what they delete, and no DELETE is left. Else *minor*: manifests that
follow each other are packed until they have the size of a full one; a rest is packed once there are many of them. A
minor merge drops a DELETE only together with its ADD: without it the file is in an earlier manifest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import pyarrow as pa

from pypaimon.streaming.formats import avro_container
from pypaimon.streaming.formats.binary_row import decode
from pypaimon.streaming.formats.binary_row_encoding import plain_row
from pypaimon.streaming.internals import DataField
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.manifest_tables import list_parser
from pypaimon.streaming.metadata.manifests import ManifestReader
from pypaimon.streaming.writing.commit.file_changes import FileChange, Identity, Record
from pypaimon.streaming.writing.commit.manifest_files import ManifestFiles, ManifestOptions, NewFiles
from pypaimon.streaming.writing.commit.manifest_records import changes_of

Group = list[Record]


def merged_manifests(
    reader: ManifestReader, writer: ManifestFiles, new: NewFiles, manifests: Sequence[Record]
) -> list[Record]:
    """Merge manifests where the rules say so.

    Args:
        reader: Of the table.
        writer: Of the table.
        new: Gets the manifests that are made.
        manifests: Records of manifest lists, in their order.

    Returns:
        Records of manifests that hold the same live files.
    """
    full = full_merge(manifests, writer.options)
    if full is not None:
        return _merge_all(reader, writer, new, manifests, full)
    found: list[Record] = []
    for group in minor_merge(manifests, writer.options):
        found += group if len(group) == 1 else _merge_group(reader, writer, new, group)
    return found


def full_merge(manifests: Sequence[Record], options: ManifestOptions) -> set[str] | None:
    """Names of the manifests that a full merge rewrites in any case; None: it is not time for one."""
    changing = [each for each in manifests if each["_NUM_DELETED_FILES"] or each["_FILE_SIZE"] < options.target_size]
    if not changing or sum(each["_FILE_SIZE"] for each in changing) < options.full_merge_size:
        return None
    return {each["_FILE_NAME"] for each in changing}


def minor_merge(manifests: Sequence[Record], options: ManifestOptions) -> list[Group]:
    """The manifests in groups, each of which becomes one (a group of one stays as it is)."""
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
    """Changes without those that undo each other; a DELETE stays whose ADD lies before them."""
    found: dict[Identity, FileChange] = {}
    for each in changes:
        identity = each.identity
        if each.kind == EntryKind.DELETE and identity in found:
            del found[identity]
        else:
            found[identity] = each
    return list(found.values())


def _merge_group(reader: ManifestReader, writer: ManifestFiles, new: NewFiles, group: Group) -> list[Record]:
    if not any(each["_NUM_DELETED_FILES"] for each in group) and any(each["_NUM_ADDED_FILES"] for each in group):
        blocks = _stored_entries(reader, writer, group)
        if blocks is not None:
            return writer.taken_over(new, blocks, group)
    return writer.manifests(new, merged_changes(changes_of(reader.entries(_table(group)))))


def _stored_entries(reader: ManifestReader, writer: ManifestFiles, group: Group) -> list[tuple[int, bytes]] | None:
    """The entries as they are encoded, if all of them are as they would be encoded here."""
    try:
        containers = [avro_container.parse(data) for data in reader.stored([each["_FILE_NAME"] for each in group])]
    except ValueError:
        # What is damaged is told by who decodes it.
        return None
    counts = (each["_NUM_ADDED_FILES"] for each in group)
    if any(
        each.schema != writer.entry_schema or each.count != count
        for each, count in zip(containers, counts, strict=True)
    ):
        return None
    return [block for each in containers for block in each.blocks]


def _merge_all(
    reader: ManifestReader, writer: ManifestFiles, new: NewFiles, manifests: Sequence[Record], changing: set[str]
) -> list[Record]:
    rewritten = [each for each in manifests if each["_FILE_NAME"] in changing]
    changes = merged_changes(changes_of(reader.entries(_table(rewritten))))
    deleted = {each.identity: each for each in changes if each.kind == EntryKind.DELETE}
    others = [each for each in manifests if each["_FILE_NAME"] not in changing]
    partitions = {each.partition for each in deleted.values()}
    searched = {each["_FILE_NAME"] for each in which_may_hold(others, partitions, writer.partition_fields)}
    kept: list[Record] = []
    for each in others:
        # A full manifest without deletes stays, unless it holds what others delete.
        inside = changes_of(reader.entries(_table([each]))) if each["_FILE_NAME"] in searched else []
        if any(entry.identity in deleted for entry in inside):
            changes += inside
        else:
            kept.append(each)
    live = [each for each in changes if each.kind == EntryKind.ADD and each.identity not in deleted]
    return [*kept, *writer.manifests(new, live)]


def which_may_hold(
    manifests: Iterable[Record], partitions: Collection[bytes], fields: Sequence[DataField]
) -> list[Record]:
    """The manifests that may hold entries of partitions, as their statistics tell.

    Args:
        manifests: Records of manifest lists.
        partitions: Serialised rows.
        fields: The partition columns, pypaimon's.
    """
    # pypaimon serialises the bounds otherwise than Java the rows, and without nanoseconds.
    wanted = {plain_row(each, fields) for each in partitions}

    def may_hold(stats: Record) -> bool:
        # With nulls, or without bounds, these are not the only partition.
        least = stats["_MIN_VALUES"]
        counts = stats["_NULL_COUNTS"]
        no_nulls = not fields or (bool(counts) and all(count == 0 for count in counts))
        only_one = least == stats["_MAX_VALUES"] and no_nulls
        only_one = only_one and None not in decode(least, fields)
        return bool(wanted) and (not only_one or plain_row(stats["_MIN_VALUES"], fields) in wanted)

    return [each for each in manifests if may_hold(each["_PARTITION_STATS"])]


def _table(manifests: Sequence[Record]) -> pa.Table:
    return list_parser().flattened([dict(each) for each in manifests])
