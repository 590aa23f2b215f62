"""Where a stream is told to begin: `Start`, by a table's `scan.*` options (Java's checks) or the builder.

Java's rules: docs/java-semantics.md#starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.arguments import millis, typed
from pypaimon.streaming.options.between import RANGE_KEYS
from pypaimon.streaming.options.option_values import OptionValues


class StartMode(str, Enum):
    """The kinds of beginning."""

    LATEST_FULL = "latest-full"
    LATEST = "latest"
    EARLIEST = "earliest"
    COMPACTED_FULL = "compacted-full"
    FROM_TIMESTAMP = "from-timestamp"
    FROM_SNAPSHOT = "from-snapshot"
    FROM_SNAPSHOT_FULL = "from-snapshot-full"
    FROM_FILE_CREATION_TIME = "from-file-creation-time"
    FROM_CREATION_TIMESTAMP = "from-creation-timestamp"
    FROM_TAG = "from-tag"
    FROM_POSITION = "from-position"
    BETWEEN = "between"


NAMED_STARTS = tuple(
    mode.value for mode in (StartMode.LATEST_FULL, StartMode.LATEST, StartMode.EARLIEST, StartMode.COMPACTED_FULL)
)
"""The modes that need nothing beside their name."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a stream begins.

    Attributes:
        mode: The kind of beginning.
        snapshot_id: For FROM_SNAPSHOT and FROM_SNAPSHOT_FULL.
        millis: For the kinds that take a time, epoch milliseconds.
        tag: For FROM_TAG.
        full: For FROM_TAG: hand out the tag's state first.
        position: For FROM_POSITION.
    """

    mode: StartMode
    snapshot_id: int | None = None
    millis: int | None = None
    tag: str | None = None
    full: bool = False
    position: Position | None = None

    @property
    def text(self) -> str:
        """It in words; equal for equal starts."""
        given = (self.snapshot_id, self.millis, self.tag, "full" if self.full else None)
        position = None if self.position is None else self.position.to_json()
        return " ".join([self.mode.value, *(str(each) for each in (*given, position) if each is not None)])

    @property
    def has_state(self) -> bool:
        """Whether the whole state of the table comes first."""
        whole = (StartMode.LATEST_FULL, StartMode.COMPACTED_FULL, StartMode.FROM_SNAPSHOT_FULL)
        return self.mode in whole or (self.mode is StartMode.FROM_TAG and self.full)

    @property
    def is_fixed(self) -> bool:
        """Whether it is the same whenever it is found: it names a snapshot, a tag, a position or a range."""
        named = any(each is not None for each in (self.snapshot_id, self.tag, self.position))
        return named or self.mode is StartMode.BETWEEN


_TIMED_STARTS = {
    "timestamp": StartMode.FROM_TIMESTAMP,
    "file_creation_time": StartMode.FROM_FILE_CREATION_TIME,
    "creation_time": StartMode.FROM_CREATION_TIMESTAMP,
}


def start_of_arguments(given: dict[str, Any], full: Any) -> Start:
    """The start that the arguments of `with_start` ask for.

    Raises:
        StreamConfigError: None or several are given, or one has a wrong type.
    """
    chosen = [name for name, value in given.items() if value is not None]
    if len(chosen) != 1:
        what = "nothing" if not chosen else " and ".join(chosen)
        raise StreamConfigError(f"with_start: {what} given; give exactly one of {', '.join(given)}")
    (name,) = chosen
    value, what = given[name], f"with_start: {name}"
    if typed(bool, "with_start: full", full) and name not in ("snapshot_id", "tag"):
        raise StreamConfigError(f"with_start: full=True goes with snapshot_id or tag, not with {name}")
    if name == "mode":
        if value not in NAMED_STARTS:
            named = ", ".join(NAMED_STARTS)
            raise StreamConfigError(f"with_start({value!r}): choose one of {named}, or give a keyword")
        return Start(StartMode(value))
    if name == "snapshot_id":
        mode = StartMode.FROM_SNAPSHOT_FULL if full else StartMode.FROM_SNAPSHOT
        return Start(mode, snapshot_id=typed(int, what, value))
    if name == "tag":
        return Start(StartMode.FROM_TAG, tag=typed(str, what, value), full=full)
    if name == "position":
        position = Position.from_json(value) if isinstance(value, str) else typed(Position, what, value)
        return Start(StartMode.FROM_POSITION, position=position)
    return Start(_TIMED_STARTS[name], millis=millis(what, value))


_MILLIS, _STRING = "scan.timestamp-millis", "scan.timestamp"
_SNAPSHOT, _TAG, _WATERMARK = "scan.snapshot-id", "scan.tag-name", "scan.watermark"
_FILE_CREATION, _CREATION = "scan.file-creation-time-millis", "scan.creation-time-millis"
_BETWEEN = RANGE_KEYS
_MODE_WORDS = (
    "default",
    "latest-full",
    "full",
    "latest",
    "latest-delta",
    "compacted-full",
    "from-timestamp",
    "from-creation-timestamp",
    "from-file-creation-time",
    "from-snapshot",
    "from-snapshot-full",
    "incremental",
)
_ALIASES = {"scan.mode": ("log.scan",), _MILLIS: ("log.scan.timestamp-millis",)}


def start_of_options(options: OptionValues) -> Start:
    """The start that a table's options ask for; latest-full when they ask for none.

    Follows `CoreOptions.startupMode`, `SchemaValidation.validateStartupMode` and
    `AbstractDataTableScan.createStartingScanner`.

    Raises:
        StreamConfigError: The options contradict each other, or ask for what only batch reads can do.
    """
    options = _adapted(options)
    mode = _resolve_mode(options)
    _validate(options, mode)
    if mode == "latest-delta":
        raise StreamConfigError("'latest-delta' scan mode is only supported for batch sources.")
    if mode == "incremental":
        raise StreamConfigError("Cannot read incremental in streaming mode.")
    if mode == "from-snapshot":
        if options.text(_TAG) is not None:
            raise StreamConfigError(
                "Cannot scan from tag in streaming mode.",
                advice="Give the tag to the builder: with_start(tag=...).",
                option="with_start: tag",
            )
        if options.text(_WATERMARK) is not None:
            raise StreamConfigError("Cannot scan from watermark in streaming mode.")
    if mode == "from-timestamp":
        millis = _millis(options)
    elif mode == "from-file-creation-time":
        millis = options.integer(_FILE_CREATION)
    elif mode == "from-creation-timestamp":
        millis = options.integer(_CREATION)
    else:
        millis = None
    snapshot_id = options.integer(_SNAPSHOT) if mode in ("from-snapshot", "from-snapshot-full") else None
    return Start(StartMode(mode), snapshot_id=snapshot_id, millis=millis)


def _adapted(options: OptionValues) -> OptionValues:
    """`scan.version` of digits is a snapshot id, as in Java's `TimeTravelUtil.adaptScanVersion`; others name tags."""
    version = options.text("scan.version")
    if version is None or not version.isdecimal() or options.text(_SNAPSHOT) is not None:
        return options
    return options.with_value(_SNAPSHOT, version)


def _millis(options: OptionValues) -> int | None:
    if _text(options, _MILLIS) is not None:
        return options.integer(_MILLIS, *_ALIASES[_MILLIS])
    return options.local_timestamp_millis(_STRING)


def _text(options: OptionValues, key: str) -> str | None:
    return options.text(key, *_ALIASES.get(key, ()))


def _resolve_mode(options: OptionValues) -> str:
    key = "scan.mode" if options.text("scan.mode") is not None else "log.scan"
    mode = options.one_of(key, _MODE_WORDS, "default")
    if mode == "full":
        return "latest-full"
    if mode != "default":
        return mode
    for resolved, keys in (
        ("from-timestamp", (_MILLIS, _STRING)),
        ("from-snapshot", (_SNAPSHOT, _TAG, _WATERMARK, "scan.version")),
        ("from-file-creation-time", (_FILE_CREATION,)),
        ("from-creation-timestamp", (_CREATION,)),
        ("incremental", _BETWEEN),
    ):
        if any(_text(options, each) is not None for each in keys):
            return resolved
    return "latest-full"


def _validate(options: OptionValues, mode: str) -> None:
    if mode == "from-timestamp":
        _exactly_one(options, mode, (_MILLIS, _STRING))
        _none_beside(options, (_SNAPSHOT, _FILE_CREATION, _TAG, *_BETWEEN), (_MILLIS, _STRING))
    elif mode == "from-snapshot":
        _exactly_one(options, mode, (_SNAPSHOT, _TAG, _WATERMARK))
        _none_beside(options, (_MILLIS, _STRING, _FILE_CREATION, *_BETWEEN), (_SNAPSHOT, _TAG))
    elif mode == "from-snapshot-full":
        _required(options, mode, _SNAPSHOT)
        _none_beside(options, (_MILLIS, _STRING, _FILE_CREATION, _TAG, *_BETWEEN), (_SNAPSHOT,))
    elif mode == "from-file-creation-time":
        _required(options, mode, _FILE_CREATION)
        _none_beside(options, (_SNAPSHOT, _MILLIS, _TAG, *_BETWEEN), (_FILE_CREATION,))
    elif mode == "incremental":
        _exactly_one(options, mode, _BETWEEN)
        _none_beside(options, (_SNAPSHOT, _MILLIS, _STRING, _FILE_CREATION, _TAG), _BETWEEN)
    else:
        batch_only = (_CREATION, _WATERMARK, "scan.version") if mode == "latest-delta" else ()
        _absent(options, mode, (_MILLIS, _STRING, _FILE_CREATION, _SNAPSHOT, _TAG, *_BETWEEN, *batch_only))
        if mode == "from-creation-timestamp":
            _required(options, mode, _CREATION)


def _exactly_one(options: OptionValues, mode: str, keys: tuple[str, ...]) -> None:
    if sum(_text(options, key) is not None for key in keys) != 1:
        raise StreamConfigError(f"must set only one key in [{','.join(keys)}] when you use {mode} for scan.mode")


def _required(options: OptionValues, mode: str, key: str) -> None:
    if _text(options, key) is None:
        raise StreamConfigError(f"{key} can not be null when you use {mode} for scan.mode")


def _absent(options: OptionValues, mode: str, keys: tuple[str, ...]) -> None:
    for key in keys:
        if _text(options, key) is not None:
            raise StreamConfigError(f"{key} must be null when you use {mode} for scan.mode")


def _none_beside(options: OptionValues, illegal: tuple[str, ...], legal: tuple[str, ...]) -> None:
    present = [key for key in illegal if _text(options, key) is not None]
    if present:
        raise StreamConfigError(f"[{','.join(present)}] must be null when you set [{','.join(legal)}]")
