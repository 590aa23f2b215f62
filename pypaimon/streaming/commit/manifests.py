"""`ManifestWriter`: manifests, manifest lists and index manifests, encoded in memory, then written all at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pyarrow as pa

from pypaimon.streaming.commit.changes import AvroRecord, FileChange, Identity, changes_of
from pypaimon.streaming.errors import PaimonStreamError, StreamConfigError, UnsupportedTableError
from pypaimon.streaming.formats import avro_container
from pypaimon.streaming.formats.avro_files import AvroWriter
from pypaimon.streaming.formats.binary_row import decode, decode_column
from pypaimon.streaming.formats.binary_row_encoding import encoded_row, plain_row
from pypaimon.streaming.merge.ordering import python_order
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.manifest_tables import list_parser
from pypaimon.streaming.metadata.manifests import ManifestReader
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.paimon.internals import DataField
from pypaimon.streaming.paimon.write_internals import (
    INDEX_MANIFEST_ENTRY_SCHEMA,
    MANIFEST_ENTRY_SCHEMA,
    MANIFEST_FILE_META_SCHEMA,
    avro_codec,
)


@dataclass(frozen=True, slots=True)
class ManifestOptions:
    """How manifests are written."""

    codec: str
    target_size: int
    merge_min_count: int
    full_merge_size: int  # Total bytes of manifests that are small or hold deletes, at which all of them are merged

    @staticmethod
    def of(table: PaimonTable) -> ManifestOptions:
        """The options of a table. Raises UnsupportedTableError if its manifests are not Avro files."""
        options = table.options
        if option_keys.MANIFEST_FORMAT.of(options).lower() != "avro":
            raise UnsupportedTableError("'manifest.format': manifests are written in Avro only. Commit with Java.")
        try:
            codec = avro_codec(option_keys.MANIFEST_COMPRESSION.of(options))
        except ValueError as error:
            raise StreamConfigError(f"'manifest.compression': {error}") from error
        return ManifestOptions(
            codec,
            option_keys.MANIFEST_TARGET_FILE_SIZE.of(options),
            option_keys.MANIFEST_MERGE_MIN_COUNT.of(options),
            option_keys.MANIFEST_FULL_COMPACTION_THRESHOLD_SIZE.of(options),
        )


@dataclass(slots=True)
class NewFiles:
    """The metadata files of one attempt: kept in memory, then written, and deleted if the attempt failed for good."""

    files: dict[str, bytes] = field(default_factory=dict)

    def write(self, directory: TableDirectory) -> None:
        """Write them all at the same time. One request each. Raises StoreError if the store failed. Some may have been
        written.
        """
        home = f"{directory.table.table_path.rstrip('/')}/manifest"
        begun = [directory.store.begin_write_new(f"{home}/{name}", data) for name, data in self.files.items()]
        with ExitStack() as answers:
            # Wait for all, also if one fails: a write that ends after the files were deleted would leave an orphan.
            for answer in begun:
                answers.callback(answer)
        for name, data in self.files.items():
            directory.manifests.keep_written(name, data)

    def delete(self, directory: TableDirectory) -> None:
        """Delete them. Failures are ignored: what is left is an orphan, and does no harm."""
        for name in self.files:
            with suppress(PaimonStreamError):
                directory.store.delete(f"{directory.table.table_path.rstrip('/')}/manifest/{name}")


class ManifestWriter:
    """Encodes the manifests of one table."""

    def __init__(self, table: PaimonTable, options: ManifestOptions) -> None:
        self.options = options
        self.partition_fields = table.partition_fields
        self._entries = AvroWriter(MANIFEST_ENTRY_SCHEMA, options.codec)
        self._lists = AvroWriter(MANIFEST_FILE_META_SCHEMA, options.codec)
        self._index = AvroWriter(INDEX_MANIFEST_ENTRY_SCHEMA, options.codec)

    @property
    def entry_schema(self) -> bytes:
        """`Container.schema` of manifests whose entries can be copied without decoding them."""
        return self._entries.stored_schema

    def manifests(self, new: NewFiles, changes: Sequence[FileChange]) -> list[AvroRecord]:
        """Put entries into manifests. Returns their records for a manifest list, in the same order."""
        records: list[AvroRecord] = []
        first = 0
        encoded = ((1, self._entries.encode(each.record())) for each in changes)
        for count, data in self._entries.files(encoded, self.options.target_size):
            inside = changes[first : first + count]
            records.append({**self._facts(inside), **_added(new, "manifest-{}-0", data)})
            first += count
        return records

    def copied(
        self, new: NewFiles, blocks: Iterable[tuple[int, bytes]], metas: Sequence[AvroRecord]
    ) -> list[AvroRecord]:
        """Put the encoded entries of several manifests, none of which may hold a DELETE, into one."""
        # No target size: the group was chosen to become one manifest.
        (found,) = self._entries.files(blocks, 1 << 62)
        return [{**self._joined_facts(metas), **_added(new, "manifest-{}-0", found[1])}]

    def manifest_list(self, new: NewFiles, records: Sequence[AvroRecord]) -> tuple[str, int]:
        """Put records into a manifest list. Returns its name and size."""
        made = _added(new, "manifest-list-{}-0", self._lists.file(map(self._lists.encode, records)))
        return made["_FILE_NAME"], made["_FILE_SIZE"]

    def index_manifest(self, new: NewFiles, records: Sequence[AvroRecord]) -> str:
        """Put records into an index manifest. Returns its name."""
        kept = ({**record, "_KIND": int(EntryKind.ADD)} for record in records)
        made = _added(new, "index-manifest-{}-0", self._index.file(map(self._index.encode, kept)))
        return str(made["_FILE_NAME"])

    def _facts(self, changes: Sequence[FileChange]) -> dict[str, Any]:
        files = [each.file for each in changes]
        partitions = [each.partition for each in changes]
        added = sum(each.kind == EntryKind.ADD for each in changes)
        first_rows = [file["_FIRST_ROW_ID"] for file in files]
        numbered = all(each is not None for each in first_rows)
        ends = [file["_FIRST_ROW_ID"] + file["_ROW_COUNT"] - 1 for file in files] if numbered else []
        totals = {each.total_buckets for each in changes}
        return {
            "_NUM_ADDED_FILES": added,
            "_NUM_DELETED_FILES": len(changes) - added,
            "_PARTITION_STATS": self._partition_stats(partitions),
            "_SCHEMA_ID": max(file["_SCHEMA_ID"] for file in files),
            "_MIN_BUCKET": min(each.bucket for each in changes),
            "_MAX_BUCKET": max(each.bucket for each in changes),
            "_MIN_LEVEL": min(file["_LEVEL"] for file in files),
            "_MAX_LEVEL": max(file["_LEVEL"] for file in files),
            "_MIN_ROW_ID": min(first_rows) if numbered else None,
            "_MAX_ROW_ID": max(ends) if numbered else None,
            "_TOTAL_BUCKETS": totals.pop() if len(totals) == 1 and min(totals) > 0 else None,
        }

    def _joined_facts(self, metas: Sequence[AvroRecord]) -> dict[str, Any]:
        def joined(name: str, of: Any) -> Any:
            values = [meta.get(name) for meta in metas]
            return None if None in values else of(values)

        totals = {meta.get("_TOTAL_BUCKETS") for meta in metas}
        return {
            "_NUM_ADDED_FILES": sum(meta["_NUM_ADDED_FILES"] for meta in metas),
            "_NUM_DELETED_FILES": 0,
            "_PARTITION_STATS": self._joined_partition_stats(metas),
            "_SCHEMA_ID": max(meta["_SCHEMA_ID"] for meta in metas),
            **{name: joined(name, min) for name in ("_MIN_BUCKET", "_MIN_LEVEL", "_MIN_ROW_ID")},
            **{name: joined(name, max) for name in ("_MAX_BUCKET", "_MAX_LEVEL", "_MAX_ROW_ID")},
            "_TOTAL_BUCKETS": totals.pop() if len(totals) == 1 else None,
        }

    def _partition_stats(self, partitions: Sequence[bytes]) -> dict[str, Any]:
        distinct = list(dict.fromkeys(partitions))
        columns = self._columns(distinct)
        bounds = [_bounds(column) for column in columns]
        place = {row: index for index, row in enumerate(distinct)}
        nulls = [sum(column[place[row]] is None for row in partitions) for column in columns]
        return self._stats(bounds, nulls)

    def _joined_partition_stats(self, metas: Sequence[AvroRecord]) -> dict[str, Any]:
        stats = [meta["_PARTITION_STATS"] for meta in metas]
        sizes = [meta["_NUM_ADDED_FILES"] + meta["_NUM_DELETED_FILES"] for meta in metas]
        least, greatest = (self._columns([each[name] for each in stats]) for name in ("_MIN_VALUES", "_MAX_VALUES"))
        bounds, nulls = [], []
        for number in range(len(self.partition_fields)):
            counts = [None if not each["_NULL_COUNTS"] else each["_NULL_COUNTS"][number] for each in stats]
            # A manifest with values but without bounds makes the bounds of all unknown.
            known = all(
                None not in pair or count == size
                for *pair, count, size in zip(least[number], greatest[number], counts, sizes, strict=True)
            )
            bounds.append(_bounds([*least[number], *greatest[number]]) if known else (None, None))
            nulls.append(None if None in counts else sum(count for count in counts if count is not None))
        return self._stats(bounds, nulls)

    def _columns(self, rows: Sequence[bytes]) -> list[list[Any]]:
        """The values of serialised rows, by column."""
        # Decoded by Arrow, because Python's datetimes would lose nanoseconds, and a bound must be one of the
        # values.
        given = pa.array(rows, pa.binary())
        return [
            decode_column(given, index, field.type).to_pylist() for index, field in enumerate(self.partition_fields)
        ]

    def _stats(self, bounds: Sequence[tuple[Any, Any]], nulls: Sequence[int | None]) -> dict[str, Any]:
        least, greatest = (encoded_row([each[place] for each in bounds], self.partition_fields) for place in (0, 1))
        return {"_MIN_VALUES": least, "_MAX_VALUES": greatest, "_NULL_COUNTS": list(nulls)}


def _bounds(values: Iterable[Any]) -> tuple[Any, Any]:
    """The least and the greatest value; None twice if they are not known."""
    present = [value for value in values if value is not None]
    # Such bounds would mislead readers: Java 1.x compares bytes as signed, and in Python no number is less
    # than NaN.
    if not present or any(isinstance(value, bytes) or value != value for value in present):
        return None, None
    return min(present, key=python_order), max(present, key=python_order)


def _added(new: NewFiles, name: str, data: bytes) -> dict[str, Any]:
    name = name.format(uuid4())
    new.files[name] = data
    return {"_VERSION": 2, "_FILE_NAME": name, "_FILE_SIZE": len(data)}


Group = list[AvroRecord]


def merged_manifests(
    reader: ManifestReader, writer: ManifestWriter, new: NewFiles, manifests: Sequence[AvroRecord]
) -> list[AvroRecord]:
    """Merge the manifests of a table if they are due. Returns records of manifests that hold the same live files."""
    # As Java's `ManifestFileMerger`: a full merge leaves no DELETE, a minor one joins neighbours that are
    # small.
    full = full_merge(manifests, writer.options)
    merged = None if full is None else _merge_all(reader, writer, new, manifests, full)
    if merged is not None:
        return merged
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
            # The ADD of such a DELETE is in an earlier manifest. Without the DELETE the file would come back.
            found[identity] = each
    return list(found.values())


def _merge_group(reader: ManifestReader, writer: ManifestWriter, new: NewFiles, group: Group) -> list[AvroRecord]:
    if not any(each["_NUM_DELETED_FILES"] for each in group) and any(each["_NUM_ADDED_FILES"] for each in group):
        # Without deletes nothing cancels out, so the entries need not be decoded.
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
) -> list[AvroRecord] | None:
    rewritten = [each for each in manifests if each["_FILE_NAME"] in changing]
    changes = merged_changes(changes_of(reader.entries(_table(rewritten))))
    deleted = {each.identity: each for each in changes if each.kind == EntryKind.DELETE}
    others = [each for each in manifests if each["_FILE_NAME"] not in changing]
    partitions = {each.partition for each in deleted.values()}
    searched = {each["_FILE_NAME"] for each in which_may_hold(others, partitions, writer.partition_fields)}
    # As in Java there is nothing to merge with a single manifest.
    if len(rewritten) + len(searched) <= 1:
        return None
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
