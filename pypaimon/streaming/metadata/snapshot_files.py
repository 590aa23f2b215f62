"""`Snapshot` and the files that hold snapshots or long-lived changelogs: decoded, cached by id, fetched in batches."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cache, partial
from itertools import takewhile
from typing import Any
from urllib.parse import unquote

from cachetools import LRUCache

from pypaimon.streaming.concurrency.forking import cache_lock
from pypaimon.streaming.errors import CorruptTableError, StoreError, StreamConfigError
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.file_paths import check_file_name
from pypaimon.streaming.metadata.fingerprints import fingerprint, is_same_history

_LOG = StreamLog(__name__)
_CACHED_SNAPSHOTS = 4096
# Java's long has at most 19 digits.
_NUMBER = re.compile(r"[0-9]{1,19}")
_HINT = re.compile(rb"[0-9]{1,19}")
_JSON = "json"
SAME_ROWS = "pypaimon.same-rows"
"""Of an OVERWRITE that replaces files by others with the same rows: its user, since a rollback copies properties."""
# Flink commits this watermark before the first one has come.
_NO_WATERMARK = -(2**63)
# The years 1 to 9999, which Python's calendar holds.
_TIMES = range(-62_135_596_800_000, 253_402_300_800_000)


def _required(value: dict[str, Any], name: str, kind: type) -> Any:
    found = value.get(name)
    if not isinstance(found, kind) or isinstance(found, bool):
        raise ValueError(f"field {name!r} is {found!r}")
    return found


def _optional(value: dict[str, Any], name: str, kind: type) -> Any:
    return None if value.get(name) is None else _required(value, name, kind)


def _file_name(value: dict[str, Any], name: str, _: type) -> str:
    found: str = _required(value, name, str)
    check_file_name(found)
    return found


def _optional_file_name(value: dict[str, Any], name: str, kind: type) -> str | None:
    return None if value.get(name) is None else _file_name(value, name, kind)


def _time(value: dict[str, Any], name: str, kind: type) -> int:
    found: int = _required(value, name, kind)
    if found not in _TIMES:
        raise ValueError(f"field {name!r} is {found!r}, which is not in the years 1 to 9999")
    return found


def _watermark(value: dict[str, Any], name: str, kind: type) -> int | None:
    found: int | None = _optional(value, name, kind)
    return None if found == _NO_WATERMARK else found


def _properties(value: dict[str, Any], name: str, kind: type) -> dict[str, Any]:
    return _optional(value, name, kind) or {}


def _json(
    name: str, kind: type = str, parse: Callable[[dict[str, Any], str, type], Any] = _required
) -> Mapping[str, tuple[str, type, Callable[[dict[str, Any], str, type], Any]]]:
    return {_JSON: (name, kind, parse)}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One commit, as Paimon 0.8 and later record it. A field that a release did not write yet is None.

    A new field of the file is one line here; a writer adds it in `commit/draft.py`.

    Attributes:
        id: Ascending from 1 without gaps.
        schema_id: Schema of the committer.
        base_manifest_list: All files before the commit.
        delta_manifest_list: The files that the commit added and removed.
        changelog_manifest_list: Changelog files of the commit, or None.
        index_manifest: Index files (deletion vectors and others), or None.
        commit_user: The committer.
        commit_identifier: The committer's number of the commit.
        commit_kind: APPEND, COMPACT, OVERWRITE or ANALYZE.
        time_millis: Commit time, epoch milliseconds.
        total_record_count: Records in all data files.
        delta_record_count: Records that the commit added, minus those that it removed.
        changelog_record_count: Records in its changelog files.
        watermark: Event-time watermark, epoch milliseconds.
        uuid: Unique id of the snapshot (newest releases).
        is_changelog: The snapshot was read from `changelog/`, because its own file has expired.
        statistics: Name of the file of table statistics, or None.
        next_row_id: The next free row id, in tables with row tracking.
        properties: Other properties that the committer recorded.
    """

    id: int = field(metadata=_json("id", int))
    schema_id: int = field(metadata=_json("schemaId", int))
    base_manifest_list: str = field(metadata=_json("baseManifestList", parse=_file_name))
    delta_manifest_list: str = field(metadata=_json("deltaManifestList", parse=_file_name))
    changelog_manifest_list: str | None = field(metadata=_json("changelogManifestList", parse=_optional_file_name))
    index_manifest: str | None = field(metadata=_json("indexManifest", parse=_optional_file_name))
    commit_user: str = field(metadata=_json("commitUser"))
    commit_identifier: int = field(metadata=_json("commitIdentifier", int))
    commit_kind: str = field(metadata=_json("commitKind"))
    time_millis: int = field(metadata=_json("timeMillis", int, _time))
    total_record_count: int | None = field(metadata=_json("totalRecordCount", int, _optional))
    delta_record_count: int | None = field(metadata=_json("deltaRecordCount", int, _optional))
    changelog_record_count: int | None = field(metadata=_json("changelogRecordCount", int, _optional))
    watermark: int | None = field(metadata=_json("watermark", int, _watermark))
    uuid: str | None = field(metadata=_json("uuid", parse=_optional))
    is_changelog: bool = False
    statistics: str | None = field(default=None, metadata=_json("statistics", parse=_optional))
    next_row_id: int | None = field(default=None, metadata=_json("nextRowId", int, _optional))
    properties: Mapping[str, Any] = field(
        default_factory=dict, hash=False, metadata=_json("properties", dict, _properties)
    )

    @property
    def fingerprint(self) -> str:
        """Distinguishes this snapshot from another one with its id, after a rollback or a re-creation."""
        return fingerprint(self.commit_user, self.commit_identifier, self.time_millis, self.uuid)

    def is_same_commit(self, other: Snapshot) -> bool:
        """Whether the files of a snapshot, tag or changelog hold one commit."""
        return self.id == other.id and is_same_history(self.fingerprint, other.fingerprint)

    @property
    def overwrites_rows(self) -> bool:
        """Whether it may replace or remove rows, which a rescale does not."""
        return self.commit_kind == "OVERWRITE" and self.properties.get(SAME_ROWS) != self.commit_user

    @property
    def state_lists(self) -> tuple[str, ...]:
        """Names of the manifest lists that hold the whole state."""
        # The first commit of a table follows none: its base list is empty, and need not be asked for. The counts rule
        # out a snapshot 1 that a tool has copied from elsewhere, with a state before it.
        if self.id == 1 and self.total_record_count is not None and self.total_record_count == self.delta_record_count:
            return (self.delta_manifest_list,)
        return (self.base_manifest_list, self.delta_manifest_list)

    @staticmethod
    def from_json(data: bytes | str, is_changelog: bool = False) -> Snapshot:
        """Decode the JSON of a snapshot, changelog or tag file. Raises ValueError if the file is not JSON, or a field
        that every release writes is missing or of another type.
        """
        value = json.loads(data)
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")
        found = {name: parse(value, key, kind) for name, (key, kind, parse) in _stored_fields()}
        return Snapshot(**found, is_changelog=is_changelog)


@cache
def _stored_fields() -> tuple[tuple[str, tuple[str, type, Any]], ...]:
    return tuple((each.name, each.metadata[_JSON]) for each in fields(Snapshot) if _JSON in each.metadata)


def _numbered(number: int, is_changelog: bool, data: bytes) -> Snapshot:
    snapshot = Snapshot.from_json(data, is_changelog)
    if snapshot.id != number:
        raise ValueError(f"it is the file of snapshot {number}, but says that it is snapshot {snapshot.id}")
    return snapshot


def branch_directory(table_path: str, branch: str | None) -> str:
    """The directory of a branch for snapshots, changelogs, schemas, tags and consumers; for `main` the table's root.
    Raises StreamConfigError if the branch would be outside of the table's directory.
    """
    root = table_path.rstrip("/")
    if branch is None or branch in ("", "main"):
        return root
    return f"{root}/branch/branch-{inside('branch', branch)}"


def inside(what: str, name: str) -> str:
    """Check that the name of a branch or tag stays a path below the table's directory, and return it. Raises
    StreamConfigError if it would leave that directory, as it is or after a `file:` URI is decoded.
    """
    if any(".." in re.split(r"[/\\]", each) for each in (name, unquote(name))):
        raise StreamConfigError(f"{what} {name!r} would leave the directory of the table.")
    return name


class SnapshotDirectory:
    """The files `<prefix><id>` of a directory, cached by id: snapshots, or the long-lived changelogs of expired ones.
    Hint files are checked. Thread-safe.
    """

    def __init__(self, store: Store, directory: str, prefix: str, are_changelogs: bool = False) -> None:
        self._store = store
        self._directory = directory
        self._prefix = prefix
        self._are_changelogs = are_changelogs
        self._cache: LRUCache[int, Snapshot] = LRUCache(_CACHED_SNAPSHOTS)
        self._lock = cache_lock(self._cache)
        self._forgotten = 0

    def path(self, number: int) -> str:
        return f"{self._directory}/{self._prefix}{number}"

    def cached(self, number: int) -> Snapshot | None:
        with self._lock.held:
            return self._cache.get(number)

    def greatest_cached(self) -> int | None:
        with self._lock.held:
            return max(self._cache, default=None)

    def keep(self, snapshot: Snapshot, forgotten: int | None = None) -> Snapshot:
        """Put a snapshot into the cache, and return it.

        `forgotten` is the number of calls of `forget` when its read began. A read from before the last call is not
        cached; None: cache it.
        """
        with self._lock.held:
            if forgotten in (None, self._forgotten):
                self._cache[snapshot.id] = snapshot
        return snapshot

    def forget(self, first: int = 0) -> None:
        """Drop the cached snapshots from this id on, and the results of reads that are under way."""
        with self._lock.held:
            self._forgotten += 1
            for number in [each for each in self._cache if each >= first]:
                del self._cache[number]

    def let_go(self, most: int) -> None:
        """Drop all cached snapshots except those with the `most` greatest ids."""
        with self._lock.held:
            for number in sorted(self._cache)[: max(0, len(self._cache) - most)]:
                del self._cache[number]

    def fetch(self, numbers: Iterable[int], most: int | None = None) -> dict[int, Snapshot | None]:
        """Files by id, requested at the same time unless cached; None for missing ones. At most the last `most` are
        requested. The others are None too.
        """
        found: dict[int, Snapshot | None] = {number: self.cached(number) for number in numbers}
        unknown = [number for number, snapshot in found.items() if snapshot is None]
        self._read_into(found, unknown if most is None else unknown[max(0, len(unknown) - most) :])
        return found

    def _read_into(self, found: dict[int, Snapshot | None], numbers: Sequence[int]) -> None:
        paths = [self.path(number) for number in numbers]
        forgotten = self._forgotten
        for number, path, data in zip(numbers, paths, self._store.read_many(paths), strict=True):
            if data is not None:
                with suppress(FileNotFoundError):
                    # It may be deleted while a file that was cut off is read again.
                    found[number] = self.keep(self._store.parse_data(path, data, self._parser(number)), forgotten)

    def refreshed_ahead(self, numbers: Sequence[int]) -> list[Snapshot]:
        """Files as they are in the store now, requested at the same time, up to the first that is missing.

        Also up to the first that cannot be read. Its error is raised by the call that needs it.
        """
        self._drop(numbers)
        found: dict[int, Snapshot | None] = {}
        try:
            self._read_into(found, numbers)
        except (CorruptTableError, StoreError) as error:
            text = "%(directory)s: not all of snapshots %(first)d to %(last)d can be read ahead: %(error)s"
            where: dict[str, Any] = {"directory": self._directory, "first": numbers[0], "last": numbers[-1]}
            _LOG.debug("prefetch_failed", text, **where, error=str(error))
        together = takewhile(lambda snapshot: snapshot is not None, map(found.get, numbers))
        return [snapshot for snapshot in together if snapshot]

    def refreshed(self, number: int) -> Snapshot | None:
        """A file as it is in the store now, without the cache."""
        return self.begin_refresh(number)()

    def begin_refresh(self, number: int) -> Callable[[], Snapshot | None]:
        """As `refreshed`, but the request is sent at once, and the returned function waits for the answer."""
        forgotten = self._forgotten
        data = self._store.begin_read(self.path(number))

        def answer() -> Snapshot | None:
            try:
                found = self._store.parse_data(self.path(number), data(), self._parser(number))
            except FileNotFoundError:
                self._drop((number,))
                return None
            return self.keep(found, forgotten)

        return answer

    def _drop(self, numbers: Iterable[int]) -> None:
        with self._lock.held:
            for number in numbers:
                self._cache.pop(number, None)

    def _parser(self, number: int) -> Callable[[bytes], Snapshot]:
        return partial(_numbered, number, self._are_changelogs)

    def get(self, number: int) -> Snapshot | None:
        """One file, None if it is missing. One request unless cached."""
        return self.fetch((number,))[number]

    def ids(self) -> list[int]:
        """Ids of all files, ascending. One listing."""
        return sorted(self._by_id(self._store.list_names(self._directory)))

    def statuses(self) -> dict[int, Any]:
        """Statuses of all files by id, ascending. One listing."""
        found = self._store.statuses_by_name(self._directory)
        return {number: found[name] for number, name in sorted(self._by_id(found).items())}

    def _by_id(self, names: Iterable[str]) -> dict[int, str]:
        numbered = ((name[len(self._prefix) :], name) for name in names if name.startswith(self._prefix))
        return {int(number): name for number, name in numbered if _NUMBER.fullmatch(number)}

    def hint(self, name: str) -> int | None:
        """The number in a hint file, unchecked; None without a file, or if it does not hold a number."""
        try:
            return _hinted(self._store.read(f"{self._directory}/{name}"))
        except FileNotFoundError:
            return None

    def begin_hinted(self, name: str) -> Callable[[], Snapshot | None]:
        """Request a hint to the greatest id; the function that is returned gives the file, if the hint is right."""
        text = self._store.begin_read(f"{self._directory}/{name}")

        def answer() -> Snapshot | None:
            try:
                number = _hinted(text())
            except FileNotFoundError:
                return None
            there = None if number is None else self._last_at(number)
            # A damaged file does not fail here. The stream that needs it reads it again and raises the error.
            with suppress(ValueError, RecursionError):
                return None if number is None or there is None else self._parser(number)(there)
            return None

        return answer

    def earliest(self) -> int | None:
        """Smallest id: the hint if its file exists and the one before it does not, else by listing."""
        hint = self.hint("EARLIEST")
        if hint is not None:
            there, before = self._store.read_many([self.path(hint), self.path(hint - 1)])
            if there is not None and before is None:
                return hint
        return min(self.ids(), default=None)

    def latest(self) -> Snapshot | None:
        """The file with the greatest id: the hint if its file exists and the next one does not, else by listing."""
        hint = self.hint("LATEST")
        there = None if hint is None else self._last_at(hint)
        if hint is not None and there is not None:
            with suppress(FileNotFoundError):
                return self.keep(self._store.parse_data(self.path(hint), there, self._parser(hint)))
        # A rollback may have removed a listed file by now.
        found = (self.refreshed(number) for number in reversed(self.ids()))
        return next((snapshot for snapshot in found if snapshot is not None), None)

    def _last_at(self, number: int) -> bytes | None:
        """The bytes of a file; None if it is missing or the next one exists."""
        there, after = self._store.read_many([self.path(number), self.path(number + 1)])
        return there if after is None else None


def _hinted(text: bytes) -> int | None:
    return int(text) if _HINT.fullmatch(text.strip()) else None
