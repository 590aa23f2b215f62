"""`ConsumerManager`: consumer files in Java's format and place, and operations on consumer ids from outside a stream.

Java's rules: docs/java-semantics.md#consumers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from uuid import uuid4

from pypaimon.streaming.consumers.consumer_names import CONSUMER_PREFIX, ConsumerName, SharedStart, check_consumer_id
from pypaimon.streaming.errors import CorruptTableError, StreamConfigError
from pypaimon.streaming.io.conditional_writes import Seen
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.fingerprints import is_same_history
from pypaimon.streaming.metadata.history import SnapshotRangeValidator
from pypaimon.streaming.metadata.snapshots import Snapshot, branch_directory
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.json_fields import parse_fields
from pypaimon.streaming.model.position import UNKNOWN_TABLE, Phase, Position
from pypaimon.streaming.model.time_zone import time_zone
from pypaimon.streaming.options.arguments import a_table
from pypaimon.streaming.paimon.handles import ReadableTable

EXPIRED = "expired"
"""The owner of a consumer that maintenance is deleting."""
AHEAD, ROLLED_BACK = "ahead of the table", "rolled back"
_LISTINGS = 10
_LOG = StreamLog(__name__)
_MAIN = "main"


@dataclass(frozen=True, slots=True)
class Consumer:
    """Content of a consumer file.

    Attributes:
        owner: Token of the reader that wrote the file; None if Java, pypaimon or a reset did. Java ignores this field
            and the following ones.
        began: In a progress file: token of the shared start that its reader began with; None if it was not shared.
        fingerprint: Fingerprint of the snapshot before the next one, as in a position; None if it is not known.
    """

    next_snapshot: int
    owner: str | None = None
    began: str | None = None
    start: SharedStart | None = None
    fingerprint: str | None = None

    @property
    def position(self) -> Position:
        """The position before the next snapshot, in whichever table is read."""
        return Position(UNKNOWN_TABLE, self.next_snapshot, self.fingerprint)

    def to_json(self, save: str | None = None) -> str:
        """The file's text, formatted as Java writes it.

        Args:
            save: Distinguishes the text from another one with the same content.
        """
        value = {
            "nextSnapshot": self.next_snapshot,
            "fingerprint": self.fingerprint,
            "owner": self.owner,
            "began": self.began,
            "start": None if self.start is None else self.start.to_value(),
            "save": save,
        }
        value = {key: each for key, each in value.items() if each is not None}
        return json.dumps(value, indent=2, separators=(",", " : "))

    @staticmethod
    def from_json(text: str | bytes) -> Consumer:
        """Read what Java, pypaimon or `to_json` wrote; unknown fields are ignored.

        Raises:
            ValueError: The text is not a consumer file.
        """
        fields = parse_fields(text, "consumer file")
        next_snapshot = fields.get("nextSnapshot", int)
        if next_snapshot < 0:
            raise ValueError(f"nextSnapshot: expected the id of a snapshot, got {next_snapshot!r}")
        start = fields.optional("start", dict)
        # Java ignores these fields, so a value that is not text must not make the file unreadable here.
        owner, began, fingerprint = (fields.optional(key, object) for key in ("owner", "began", "fingerprint"))
        return Consumer(
            next_snapshot,
            None if owner is None else str(owner),
            None if began is None else str(began),
            None if start is None else SharedStart.from_value(start),
            None if fingerprint is None else str(fingerprint),
        )


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """One consumer file as `list_consumers` returns it.

    Attributes:
        consumer_id: Consumer id.
        name: What the file is for: a shard, a member, the pin of a first full plan.
        next_snapshot: Id of the next snapshot to read.
        owner: Token of the reader that wrote it; None if Java, pypaimon or a reset did.
        last_save: When the file was last written (aware, UTC); None if the store has no modification times.
        lag: Snapshots from the next one to the latest; None if that is not known, or if the consumer is ahead of the
            table.
        fingerprint: Fingerprint of the snapshot before the next one; None if it is not known.
        start: In a first-plan file the start that it keeps; None if it is not known.
    """

    consumer_id: str
    name: ConsumerName
    next_snapshot: int
    owner: str | None
    last_save: datetime | None
    lag: int | None
    fingerprint: str | None = None
    start: Position | None = None

    @property
    def position(self) -> Position:
        """Its progress in whichever table is read: inside the snapshot of a first plan, or before the next one."""
        if self.start is not None:
            return self.start
        phase = Phase.FULL if self.name.is_pin else Phase.FOLLOW
        return Position(UNKNOWN_TABLE, self.next_snapshot, self.fingerprint, phase)


class ConsumerManager:
    """The consumers of one table and branch (Java's `ConsumerManager`, with pypaimon's method names).

    Files are `<table>[/branch/branch-<b>]/consumer/consumer-<id>`. Operations on an id include the files of its shards
    and members, and their pins. All calls block.

    Args:
        file_io: The table's `FileIO`.
        table_path: Path of the table.
        branch: Branch name; None or blank means `main`.
    """

    CONSUMER_PREFIX = CONSUMER_PREFIX

    def __init__(self, file_io: Any, table_path: str, branch: str | None = None, *, store: Store | None = None) -> None:
        self._file_io = file_io
        self._table_path = table_path.rstrip("/")
        self._branch = branch if branch and branch.strip() else _MAIN
        self._store = store or Store(file_io)

    @property
    def directory(self) -> str:
        """The directory of the files. It need not exist."""
        return f"{branch_directory(self._table_path, self._branch)}/consumer"

    def with_branch(self, branch: str | None) -> ConsumerManager:
        """The consumers of another branch of the table."""
        return ConsumerManager(self._file_io, self._table_path, branch, store=self._store)

    # ---- single files, as `Progress` uses them ----

    def path(self, name: ConsumerName) -> str:
        """Path of a file."""
        return f"{self.directory}/{name.file_name}"

    def read(self, name: ConsumerName) -> Consumer | None:
        """Content of one file; None if it is missing. One GET.

        Raises:
            CorruptTableError: It is damaged, and still was after it was read again a few times.
            StoreError: The store failed.
        """
        try:
            consumer: Consumer = self._store.parse(self.path(name), Consumer.from_json)
        except FileNotFoundError:
            return None
        return consumer

    def write(self, name: ConsumerName, consumer: Consumer) -> None:
        """Write one file; after a crash it is the old or the new one. One PUT."""
        self._store.write_atomic(self.path(name), consumer.to_json().encode())
        self._log_written(name, consumer)

    def look(self, name: ConsumerName) -> tuple[Consumer, Seen] | None:
        """As `read`, with what `replace` needs to know. One GET."""
        try:
            return self._store.look(self.path(name), Consumer.from_json)
        except FileNotFoundError:
            return None

    def replace(self, name: ConsumerName, consumer: Consumer, seen: Seen | None) -> None:
        """Write one file if it has not changed since `look` (None: it was missing). One PUT, see `Store.replace`.

        The file changes even if its content does not: maintenance that expires the consumer, because it was not saved
        for long, has to notice that it was saved just now.

        Raises:
            ChangedFileError: The file has changed; nothing was written.
        """
        is_same = seen is not None and Consumer.from_json(seen.data) == consumer
        text = consumer.to_json(uuid4().hex[:8] if is_same else None)
        self._store.replace(self.path(name), text.encode(), seen)
        self._log_written(name, consumer)

    def _log_written(self, name: ConsumerName, consumer: Consumer) -> None:
        fields: dict[str, Any] = {"consumer": name.text, "snapshot": consumer.next_snapshot, "path": self.path(name)}
        if name.is_pin:
            text = "%(path)s keeps snapshot %(snapshot)d and later ones until the first plan is confirmed"
            _LOG.info("consumer_fenced", text, **fields)
        else:
            _LOG.debug("consumer_saved", "%(path)s saved: the next snapshot is %(snapshot)d", **fields)

    def delete(self, name: ConsumerName) -> None:
        """Delete one file, if it exists."""
        self._store.delete(self.path(name))
        _LOG.info("consumer_deleted", "%(path)s was deleted", consumer=name.text, path=self.path(name))

    def names(self, consumer_id: str | None = None, *, listed: Mapping[str, Any] | None = None) -> list[ConsumerName]:
        """Every file, or those of one id, ordered by name. One LIST.

        Args:
            consumer_id: The id; None: all.
            listed: The files of `directory`, if they have just been listed.
        """
        return [name for name in self._last_saves(listed) if consumer_id is None or name.consumer_id == consumer_id]

    # ---- whole consumer ids ----

    def consumer(self, consumer_id: str) -> Consumer | None:
        """The progress of an id, which is that of its slowest shard or member; None if nothing was saved yet.

        Raises:
            StreamConfigError: The id is invalid.
            CorruptTableError: One of its files is damaged.
        """
        check_consumer_id(consumer_id)
        saved = self._read_all(name for name in self.names(consumer_id) if not name.is_pin)
        return min(saved.values(), key=lambda consumer: consumer.next_snapshot, default=None)

    def reset_consumer(self, consumer_id: str, consumer: Consumer) -> None:
        """Make every reader of the id start at `consumer.next_snapshot`.

        All its shards and members get it, even those that only have a pin, and the pins are deleted. A reader that is
        running finds its file changed and ends with `ConsumerConflictError`. The snapshot need not exist, while Java's
        procedure requires it.

        Raises:
            StreamConfigError: The id is invalid, or the next snapshot is negative.
        """
        check_consumer_id(consumer_id)
        if consumer.next_snapshot < 0:
            raise StreamConfigError(f"next snapshot {consumer.next_snapshot} cannot be negative.")
        existing = self.names(consumer_id)
        # With shards or members, the pin of the plain id is the file of their shared start, not of a plain reader.
        shared = any(name.shard or name.member for name in existing)
        own = [name for name in existing if not (shared and name == ConsumerName(consumer_id, is_pin=True))]
        targets = {name for found in own for name in found.sharding} or {ConsumerName(consumer_id)}
        for name in sorted(targets, key=lambda name: name.text):
            self.write(name, Consumer(consumer.next_snapshot))
        self._delete_all(name for name in existing if name.is_pin)

    def delete_consumer(self, consumer_id: str) -> None:
        """Delete an id, if it exists.

        Raises:
            StreamConfigError: The id is invalid.
        """
        check_consumer_id(consumer_id)
        self._delete_all(self.names(consumer_id))

    def clear_consumers(self, including_pattern: str, excluding_pattern: str | None = None) -> None:
        """Delete every id that `including_pattern` matches as a whole, unless `excluding_pattern` does too.

        Raises:
            StreamConfigError: A pattern is not a regular expression.
        """
        ids = matching_ids(self, including_pattern, excluding_pattern)
        self._delete_all(name for name in self.names() if name.consumer_id in ids)

    def expire(self, expire_datetime: datetime) -> None:
        """Delete all files that were last written before a time (naive: local time), as Java's writers do. One LIST."""
        limit = time_zone(None).moment(expire_datetime)
        self._delete_all(name for name, saved in self._last_saves().items() if saved is not None and saved < limit)

    def list_all_ids(self) -> list[str]:
        """Every consumer id once, sorted. One LIST."""
        return sorted({name.consumer_id for name in self.names()})

    def consumers(self) -> dict[str, int]:
        """For every consumer id the smallest next snapshot of its files, pins included: what it keeps from expiring."""
        smallest: dict[str, int] = {}
        for name, (consumer, _) in self._all().items():
            known = smallest.get(name.consumer_id, consumer.next_snapshot)
            smallest[name.consumer_id] = min(known, consumer.next_snapshot)
        return smallest

    def min_next_snapshot(self) -> int | None:
        """The smallest next snapshot of all files, pins included. Expiry stops before it. None without consumers."""
        return min(self.consumers().values(), default=None)

    def infos(self, latest_id: int | None = None, listed: Mapping[str, Any] | None = None) -> list[ConsumerInfo]:
        """Every consumer file, ordered by name. One LIST and a GET each.

        Args:
            latest_id: The table's latest snapshot, for `lag`; None if it is not known.
            listed: The files of `directory`, if they have just been listed.
        """
        return [
            ConsumerInfo(
                name.consumer_id,
                name,
                consumer.next_snapshot,
                consumer.owner,
                last_save,
                _lag(consumer.next_snapshot, latest_id),
                consumer.fingerprint,
                consumer.start.position if name.is_pin and consumer.start is not None else None,
            )
            for name, (consumer, last_save) in self._all(listed).items()
        ]

    def _all(self, listed: Mapping[str, Any] | None = None) -> dict[ConsumerName, tuple[Consumer, datetime | None]]:
        """Every file, and when it was written, ordered by name. Raises CorruptTableError if one stays missing."""
        for _ in range(_LISTINGS):
            last_saves, listed = self._last_saves(listed), None
            # A reader writes its first progress file before it deletes its pin, so a slow listing may contain
            # neither. The pin is gone when it is read then, and the files are listed again.
            found = self._read_all(last_saves)
            if len(found) == len(last_saves):
                return {name: (consumer, last_saves[name]) for name, consumer in found.items()}
        (missing, *_) = (name for name in last_saves if name not in found)
        raise CorruptTableError(self.path(missing), "is listed, but cannot be found")

    def _read_all(self, names: Iterable[ConsumerName]) -> dict[ConsumerName, Consumer]:
        found = {name: self.read(name) for name in names}
        return {name: consumer for name, consumer in found.items() if consumer is not None}

    def _delete_all(self, names: Iterable[ConsumerName]) -> None:
        for name in list(names):
            self.delete(name)

    def _last_saves(self, listed: Mapping[str, Any] | None = None) -> dict[ConsumerName, datetime | None]:
        saves, listed = {}, self._store.list_written(self.directory) if listed is None else listed
        for name, status in sorted(listed.items()):
            if name.startswith(CONSUMER_PREFIX) and name != CONSUMER_PREFIX:
                saves[ConsumerName.parse(name[len(CONSUMER_PREFIX) :])] = last_write(status)
        return saves


def consumers_of(directory: TableDirectory) -> ConsumerManager:
    table = directory.table
    return ConsumerManager(table.file_io, table.table_path, directory.branch, store=directory.store)


def list_consumers(table: ReadableTable) -> list[ConsumerInfo]:
    """Every consumer file of the table's branch, ordered by name; shards, members and pins are listed one by one.

    Costs a listing, a request for each file, and those for the latest snapshot.

    Args:
        table: A pypaimon table.

    Raises:
        CorruptTableError: A file is damaged.
    """
    directory = TableDirectory.of(a_table("list_consumers: table", table))
    return consumers_of(directory).infos(directory.snapshots.latest_id())


def lost_state(info: ConsumerInfo, latest_id: int | None, found: Callable[[int], Snapshot | None]) -> str | None:
    """Why readers of a consumer end with an error: the last snapshot that it has read, also in part, is gone.

    Args:
        latest_id: The latest snapshot, which must be read after the consumer's file; None without one.
        found: Finds a snapshot by its id. It is asked at most once, and only if a fingerprint is known.

    Returns:
        "rolled back"; or "ahead of the table", if it is not known whether the consumer has read anything; None if
        neither is known.
    """
    position = info.position
    if position.last_read > (latest_id or 0):
        return ROLLED_BACK if position.is_inside or position.fingerprint is not None else AHEAD
    if position.fingerprint is None or position.last_read < 1:
        return None
    try:
        read = found(position.last_read)
    except CorruptTableError:
        return None
    return None if read is None or is_same_history(position.fingerprint, read.fingerprint) else ROLLED_BACK


def snapshots_read(directory: TableDirectory) -> Callable[[int], Snapshot | None]:
    """Finds snapshots for `lost_state`: one request each, and another one if the snapshot has expired."""
    return SnapshotRangeValidator(directory, with_changelogs=True).found


def last_write(status: Any) -> datetime | None:
    """When a listed file was written (aware, UTC); None if the store has no modification times."""
    modified = status.mtime
    if modified is None:
        return None
    if isinstance(modified, (int, float)):
        return datetime.fromtimestamp(modified, tz=timezone.utc)
    aware: datetime = modified if modified.tzinfo else modified.replace(tzinfo=timezone.utc)
    return aware.astimezone(timezone.utc)


def _lag(next_snapshot: int, latest_id: int | None) -> int | None:
    if latest_id is None or next_snapshot > latest_id + 1:
        return None
    # A consumer at snapshot 0 has read nothing, and begins at the earliest snapshot.
    return latest_id - max(next_snapshot, 1) + 1


def matching_ids(manager: ConsumerManager, including_pattern: str, excluding_pattern: str | None = None) -> list[str]:
    """The ids that `ConsumerManager.clear_consumers` deletes, sorted. One LIST."""
    try:
        including, excluding = (re.compile(each or "") for each in (including_pattern, excluding_pattern))
    except re.error as error:
        raise StreamConfigError(f"invalid regular expression {error.pattern!r}: {error}") from error
    ids = manager.list_all_ids()
    return [each for each in ids if including.fullmatch(each) and not (excluding_pattern and excluding.fullmatch(each))]
