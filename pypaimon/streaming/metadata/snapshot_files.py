"""`Snapshot` and the files that hold snapshots or long-lived changelogs: decoded, cached by id, fetched in batches."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Any
from urllib.parse import unquote

from cachetools import LRUCache

from pypaimon.streaming.concurrency.forking import cache_lock
from pypaimon.streaming.errors import CorruptTableError, StoreError, StreamConfigError
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.file_paths import check_file_name

_LOG = StreamLog(__name__)
_CACHED_SNAPSHOTS = 4096
_NUMBER = re.compile(r"[0-9]{1,19}")
_HINT = re.compile(rb"[0-9]{1,19}")
# Flink commits with it where no watermark has come yet.
_NO_WATERMARK = -(2**63)
# Of the years 1 to 9999, which is what a calendar holds.
_TIMES = range(-62_135_596_800_000, 253_402_300_800_000)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One commit, as Paimon 0.8 and later record it; what a release did not write yet is None.

    Attributes:
        id: Ascending from 1 without gaps.
        schema_id: Schema of the committer.
        base_manifest_list: Everything before the commit.
        delta_manifest_list: What the commit added and removed.
        changelog_manifest_list: Changelog files of the commit, or None.
        index_manifest: Index files (deletion vectors and others), or None.
        commit_user: Who committed.
        commit_identifier: The committer's number of the commit.
        commit_kind: APPEND, COMPACT, OVERWRITE or ANALYZE.
        time_millis: Commit time, epoch milliseconds.
        total_record_count: Records in all data files.
        delta_record_count: Records added less removed by the commit.
        changelog_record_count: Records in its changelog files.
        watermark: Event-time watermark, epoch milliseconds.
        uuid: Unique id of the snapshot (newest releases).
        is_changelog: It was read from `changelog/`: its snapshot has expired.
        statistics: Name of the file of table statistics, or None.
        next_row_id: The first row id that is free, in tables with row tracking.
        properties: What the committer noted beside.
    """

    id: int
    schema_id: int
    base_manifest_list: str
    delta_manifest_list: str
    changelog_manifest_list: str | None
    index_manifest: str | None
    commit_user: str
    commit_identifier: int
    commit_kind: str
    time_millis: int
    total_record_count: int | None
    delta_record_count: int | None
    changelog_record_count: int | None
    watermark: int | None
    uuid: str | None
    is_changelog: bool = False
    statistics: str | None = None
    next_row_id: int | None = None
    properties: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def fingerprint(self) -> str:
        """Tells this snapshot from another one with the same id, after a rollback or a re-creation."""
        return self.uuid or f"{self.commit_user}/{self.commit_identifier}/{self.time_millis}"

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
        """Decode the JSON of a snapshot, changelog or tag file.

        Raises:
            ValueError: It is no JSON, or a field that every release writes is missing or of another type.
        """
        value = json.loads(data)
        if not isinstance(value, dict):
            raise ValueError("no JSON object")
        watermark = _optional(value, "watermark", int)
        return Snapshot(
            id=_field(value, "id", int),
            schema_id=_field(value, "schemaId", int),
            base_manifest_list=_file_name(value, "baseManifestList"),
            delta_manifest_list=_file_name(value, "deltaManifestList"),
            changelog_manifest_list=_optional_file_name(value, "changelogManifestList"),
            index_manifest=_optional_file_name(value, "indexManifest"),
            commit_user=_field(value, "commitUser", str),
            commit_identifier=_field(value, "commitIdentifier", int),
            commit_kind=_field(value, "commitKind", str),
            time_millis=_time(value, "timeMillis"),
            total_record_count=_optional(value, "totalRecordCount", int),
            delta_record_count=_optional(value, "deltaRecordCount", int),
            changelog_record_count=_optional(value, "changelogRecordCount", int),
            watermark=None if watermark == _NO_WATERMARK else watermark,
            uuid=_optional(value, "uuid", str),
            is_changelog=is_changelog,
            statistics=_optional(value, "statistics", str),
            next_row_id=_optional(value, "nextRowId", int),
            properties=_optional(value, "properties", dict) or {},
        )


def _numbered(number: int, is_changelog: bool, data: bytes) -> Snapshot:
    snapshot = Snapshot.from_json(data, is_changelog)
    if snapshot.id != number:
        raise ValueError(f"it is the file of snapshot {number}, but says that it is snapshot {snapshot.id}")
    return snapshot


def _file_name(value: dict[str, Any], name: str) -> str:
    found: str = _field(value, name, str)
    check_file_name(found)
    return found


def _optional_file_name(value: dict[str, Any], name: str) -> str | None:
    return None if value.get(name) is None else _file_name(value, name)


def _field(value: dict[str, Any], name: str, kind: type) -> Any:
    found = value.get(name)
    if not isinstance(found, kind) or isinstance(found, bool):
        raise ValueError(f"field {name!r} is {found!r}")
    return found


def _time(value: dict[str, Any], name: str) -> int:
    found: int = _field(value, name, int)
    if found not in _TIMES:
        raise ValueError(f"field {name!r} is {found!r}, which lies in no year from 1 to 9999")
    return found


def _optional(value: dict[str, Any], name: str, kind: type) -> Any:
    return None if value.get(name) is None else _field(value, name, kind)


def branch_directory(table_path: str, branch: str | None) -> str:
    """Where a branch keeps snapshots, changelogs, schemas, tags and consumers; the table's root for `main`.

    Raises:
        StreamConfigError: The branch would lie outside of the table's directory.
    """
    root = table_path.rstrip("/")
    if branch is None or branch in ("", "main"):
        return root
    return f"{root}/branch/branch-{inside('branch', branch)}"


def inside(what: str, name: str) -> str:
    """The name of a branch or tag, which is a path below the table's directory.

    Raises:
        StreamConfigError: It would leave that directory, as it is or as a `file:` URI is decoded.
    """
    if any(".." in re.split(r"[/\\]", each) for each in (name, unquote(name))):
        raise StreamConfigError(f"{what} {name!r} would leave the directory of the table.")
    return name


class SnapshotFiles:
    """The files `<prefix><id>` of a directory, cached by id, with hint files that are only hints. Thread-safe.

    Args:
        store: Requests go through it.
        directory: Where the files are; need not exist.
        prefix: What their names begin with.
        are_changelogs: They are what is left of snapshots that have expired.
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
        """Path of a file."""
        return f"{self._directory}/{self._prefix}{number}"

    def cached(self, number: int) -> Snapshot | None:
        """What is known without a request."""
        with self._lock.held:
            return self._cache.get(number)

    def greatest_cached(self) -> int | None:
        """The greatest id that is known without a request."""
        with self._lock.held:
            return max(self._cache, default=None)

    def keep(self, snapshot: Snapshot, forgotten: int | None = None) -> Snapshot:
        """Put it into the cache; returns it.

        Args:
            forgotten: How often `forget` had been called when its read began: an older read is not cached.
        """
        with self._lock.held:
            if forgotten in (None, self._forgotten):
                self._cache[snapshot.id] = snapshot
        return snapshot

    def forget(self, first: int = 0) -> None:
        """Drop what is cached from this id on, and what reads that are under way will bring."""
        with self._lock.held:
            self._forgotten += 1
            for number in [each for each in self._cache if each >= first]:
                del self._cache[number]

    def let_go(self, most: int) -> None:
        """Drop what is cached, but for so many of the greatest ids."""
        with self._lock.held:
            for number in sorted(self._cache)[: max(0, len(self._cache) - most)]:
                del self._cache[number]

    def fetch(self, numbers: Iterable[int], most: int | None = None) -> dict[int, Snapshot | None]:
        """These files, asked for at the same time unless cached; None for those that are missing.

        Args:
            numbers: Which.
            most: How many may be asked for, the last ones; the others are None too. None: all.
        """
        found: dict[int, Snapshot | None] = {number: self.cached(number) for number in numbers}
        unknown = [number for number, snapshot in found.items() if snapshot is None]
        self._read_into(found, unknown if most is None else unknown[max(0, len(unknown) - most) :])
        return found

    def _read_into(self, found: dict[int, Snapshot | None], numbers: Sequence[int]) -> None:
        """Ask for these files at the same time, past the cache, and add them one by one."""
        paths = [self.path(number) for number in numbers]
        forgotten = self._forgotten
        for number, path, data in zip(numbers, paths, self._store.read_many(paths), strict=True):
            if data is not None:
                with suppress(FileNotFoundError):
                    found[number] = self.keep(self._store.parse_data(path, data, self._parser(number)), forgotten)

    def refreshed_ahead(self, numbers: Sequence[int]) -> list[Snapshot]:
        """These files as they are in the store now, asked for at the same time, up to the first that is missing.

        Also up to the first that cannot be read: the reason is for him who needs that one.
        """
        self._drop(numbers)
        found: dict[int, Snapshot | None] = {}
        try:
            self._read_into(found, numbers)
        except (CorruptTableError, StoreError) as error:
            text = "%(directory)s: not all of snapshots %(first)d to %(last)d can be read ahead: %(error)s"
            where: dict[str, Any] = {"directory": self._directory, "first": numbers[0], "last": numbers[-1]}
            _LOG.debug("look_ahead_failed", text, **where, error=str(error))
        together = takewhile(lambda snapshot: snapshot is not None, map(found.get, numbers))
        return [snapshot for snapshot in together if snapshot]

    def refreshed(self, number: int) -> Snapshot | None:
        """A file as it is in the store now, past the cache."""
        return self.begin_refresh(number)()

    def begin_refresh(self, number: int) -> Callable[[], Snapshot | None]:
        """As `refreshed`, asked for at once: the call that is returned waits for the answer."""
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
        names = self._store.list_names(self._directory)
        numbers = (name[len(self._prefix) :] for name in names if name.startswith(self._prefix))
        return sorted(int(number) for number in numbers if _NUMBER.fullmatch(number))

    def hint(self, name: str) -> int | None:
        """What a hint file says, unchecked; None without one, or if it holds no number."""
        try:
            return _hinted(self._store.read(f"{self._directory}/{name}"))
        except FileNotFoundError:
            return None

    def begin_hinted(self, name: str) -> Callable[[], Snapshot | None]:
        """Ask for a hint to the greatest id at once; the call that is returned gives the file, if the hint is right."""
        text = self._store.begin_read(f"{self._directory}/{name}")

        def answer() -> Snapshot | None:
            try:
                number = _hinted(text())
            except FileNotFoundError:
                return None
            there = None if number is None else self._last_at(number)
            # A damaged file is not read again here: the stream that needs it does that, and raises the error.
            with suppress(ValueError, RecursionError):
                return None if number is None or there is None else self._parser(number)(there)
            return None

        return answer

    def earliest(self) -> int | None:
        """Smallest id: the hint if its file is there and the one before it is not, else by listing."""
        hint = self.hint("EARLIEST")
        if hint is not None:
            there, before = self._store.read_many([self.path(hint), self.path(hint - 1)])
            if there is not None and before is None:
                return hint
        return min(self.ids(), default=None)

    def latest(self) -> Snapshot | None:
        """That of greatest id: the hint's if its file is there and the one after it is not, else by listing."""
        hint = self.hint("LATEST")
        there = None if hint is None else self._last_at(hint)
        if hint is not None and there is not None:
            with suppress(FileNotFoundError):
                return self.keep(self._store.parse_data(self.path(hint), there, self._parser(hint)))
        # One that was listed may be gone by now, through a rollback.
        found = (self.refreshed(number) for number in reversed(self.ids()))
        return next((snapshot for snapshot in found if snapshot is not None), None)

    def _last_at(self, number: int) -> bytes | None:
        """The bytes of a file, None if it is missing or the one after it is there."""
        there, after = self._store.read_many([self.path(number), self.path(number + 1)])
        return there if after is None else None


def _hinted(text: bytes) -> int | None:
    return int(text) if _HINT.fullmatch(text.strip()) else None
