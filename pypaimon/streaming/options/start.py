"""Where a stream begins: `Start`, from a table's `scan.*` options (Java's checks) or from the builder.

A start mode is three things: its row in `_FACTS` with its rule in `_OPTION_RULES` (here), the function that finds its
snapshot (`planning/start.py`), and, if it takes an argument of its own, that argument of `with_start`. Other modules
ask a `Start` for a fact and never compare modes.

Java's rules: docs/java-semantics.md#starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.arguments import millis, typed
from pypaimon.streaming.options.between import RANGE_KEYS
from pypaimon.streaming.options.option_key import OptionKey, TableOptions


class StartMode(str, Enum):
    """The start modes, by the words of Java's `scan.mode` where it has one."""

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


class ChoosesFiles(Enum):
    """Which plans of a stream leave out files that were created before the time of its start."""

    NO = 0
    IN_FIRST_PLAN = 1
    ALWAYS = 2


@dataclass(frozen=True, slots=True)
class _Facts:
    """What other modules have to know about a start mode.

    Attributes:
        by_name: The name alone is a start: `with_start("latest")`, `--start latest`.
        time_argument: The argument of `with_start` that gives the mode its time.
        has_state: The full state of the table comes first.
        is_fixed: The start is the same whenever it is resolved: it names a snapshot, a tag, a position or a range.
        stands_when_empty: On an empty table the start is the first commit, whenever that comes.
        after_latest: The first snapshot to read is still to be committed.
        chooses_files: Whether the start leaves out files by their creation time.
        of_chain: A chain table has this start: it names no snapshot or time, which belong to one branch.
    """

    by_name: bool = False
    time_argument: str | None = None
    has_state: bool = False
    is_fixed: bool = False
    stands_when_empty: bool = False
    after_latest: bool = False
    chooses_files: ChoosesFiles = ChoosesFiles.NO
    of_chain: bool = False


_FACTS = {
    StartMode.LATEST_FULL: _Facts(by_name=True, has_state=True, stands_when_empty=True, of_chain=True),
    StartMode.LATEST: _Facts(by_name=True, stands_when_empty=True, after_latest=True),
    StartMode.EARLIEST: _Facts(by_name=True, stands_when_empty=True),
    StartMode.COMPACTED_FULL: _Facts(by_name=True, has_state=True),
    StartMode.FROM_TIMESTAMP: _Facts(time_argument="timestamp"),
    StartMode.FROM_SNAPSHOT: _Facts(is_fixed=True),
    StartMode.FROM_SNAPSHOT_FULL: _Facts(has_state=True, is_fixed=True),
    StartMode.FROM_FILE_CREATION_TIME: _Facts(time_argument="file_creation_time", chooses_files=ChoosesFiles.ALWAYS),
    StartMode.FROM_CREATION_TIMESTAMP: _Facts(time_argument="creation_time", chooses_files=ChoosesFiles.IN_FIRST_PLAN),
    StartMode.FROM_TAG: _Facts(is_fixed=True),
    StartMode.FROM_POSITION: _Facts(is_fixed=True, of_chain=True),
    StartMode.BETWEEN: _Facts(is_fixed=True),
}

NAMED_STARTS = tuple(mode.value for mode, facts in _FACTS.items() if facts.by_name)
"""The modes that need nothing but their name."""
_TIMED_STARTS = {facts.time_argument: mode for mode, facts in _FACTS.items() if facts.time_argument}


@dataclass(frozen=True, slots=True)
class Start:
    """Where a stream begins.

    Attributes:
        mode: The start mode.
        snapshot_id: For FROM_SNAPSHOT and FROM_SNAPSHOT_FULL.
        millis: For the modes that take a time, epoch milliseconds.
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
        """The start as text; equal for equal starts."""
        given = (self.snapshot_id, self.millis, self.tag, "full" if self.full else None)
        position = None if self.position is None else self.position.to_json()
        return " ".join([self.mode.value, *(str(each) for each in (*given, position) if each is not None)])

    @property
    def number(self) -> int:
        """The snapshot id or the time that the start names; 0 if it names neither."""
        return self.snapshot_id if self.snapshot_id is not None else self.millis or 0

    @property
    def is_latest_state(self) -> bool:
        """Whether the stream begins with the state of the latest snapshot."""
        return self.mode is StartMode.LATEST_FULL

    @property
    def has_state(self) -> bool:
        """Whether the full state of the table comes first."""
        return _FACTS[self.mode].has_state or self.full

    @property
    def is_fixed(self) -> bool:
        """Whether the start is the same whenever it is resolved: it names a snapshot, a tag, a position or a range."""
        return _FACTS[self.mode].is_fixed

    @property
    def stands_when_empty(self) -> bool:
        """Whether the start on an empty table is the first commit, whenever that comes."""
        return _FACTS[self.mode].stands_when_empty

    @property
    def after_latest(self) -> bool:
        """Whether the first snapshot to read is still to be committed."""
        return _FACTS[self.mode].after_latest

    @property
    def of_chain(self) -> bool:
        """Whether a chain table has this start."""
        return _FACTS[self.mode].of_chain

    def created_after(self, *, in_first_plan: bool) -> int | None:
        """Only files created at this time or later are read, epoch milliseconds; None: all files.

        Args:
            in_first_plan: Whether the first full plan is meant, or the snapshots after it.
        """
        plans = (ChoosesFiles.ALWAYS, ChoosesFiles.IN_FIRST_PLAN) if in_first_plan else (ChoosesFiles.ALWAYS,)
        return self.millis if _FACTS[self.mode].chooses_files in plans else None


def chooses_files(text: str) -> bool:
    """Whether a start, given as `Start.text`, leaves out files by their creation time."""
    choosing = (mode.value for mode, facts in _FACTS.items() if facts.chooses_files is not ChoosesFiles.NO)
    return any(map(text.startswith, choosing))


def start_of_arguments(given: dict[str, Any], full: Any) -> Start:
    """The start that the arguments of `with_start` ask for.

    Raises:
        StreamConfigError: No argument or several are given, or one has a wrong type.
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


_Key: TypeAlias = OptionKey[Any, Any]
_MILLIS, _STRING = option_keys.SCAN_TIMESTAMP_MILLIS, option_keys.SCAN_TIMESTAMP
_SNAPSHOT, _TAG, _WATERMARK = option_keys.SCAN_SNAPSHOT_ID, option_keys.SCAN_TAG_NAME, option_keys.SCAN_WATERMARK
_FILE_CREATION, _CREATION = option_keys.SCAN_FILE_CREATION_TIME_MILLIS, option_keys.SCAN_CREATION_TIME_MILLIS
_VERSION = option_keys.SCAN_VERSION
_ALL_BUT_CREATION = (_MILLIS, _STRING, _FILE_CREATION, _SNAPSHOT, _TAG, *RANGE_KEYS)


def _timestamp(options: TableOptions) -> int | None:
    return _MILLIS.of(options) if _MILLIS.set_as(options) else _STRING.of(options)


@dataclass(frozen=True, slots=True)
class _OptionRule:
    """How `scan.*` options choose a mode and which of them go together, as in Java's `validateStartupMode`.

    Attributes:
        implied_by: Options that choose the mode where `scan.mode` does not.
        absent: Options that must not be set.
        exactly_one: Exactly one of these options must be set.
        required: This option must be set.
        excluded: Options that must not be set next to `legal`; Java words this error in another way than `absent`.
        legal: The options that the error for `excluded` names.
        has_snapshot: Whether the mode takes `scan.snapshot-id`.
        millis: Reads the time of the mode.
    """

    implied_by: tuple[_Key, ...] = ()
    absent: tuple[_Key, ...] = ()
    exactly_one: tuple[_Key, ...] = ()
    required: _Key | None = None
    excluded: tuple[_Key, ...] = ()
    legal: tuple[_Key, ...] = ()
    has_snapshot: bool = False
    millis: Callable[[TableOptions], int | None] | None = None

    def check(self, options: TableOptions, mode: str) -> None:
        """Raises StreamConfigError, in Java's words, if the options contradict the mode or each other."""
        for key in self.absent:
            if key.set_as(options):
                raise StreamConfigError(f"{key} must be null when you use {mode} for scan.mode")
        if self.exactly_one and sum(key.set_as(options) is not None for key in self.exactly_one) != 1:
            keys = _names(self.exactly_one)
            raise StreamConfigError(f"must set only one key in [{keys}] when you use {mode} for scan.mode")
        if self.required is not None and not self.required.set_as(options):
            raise StreamConfigError(f"{self.required} can not be null when you use {mode} for scan.mode")
        present = [key for key in self.excluded if key.set_as(options)]
        if present:
            raise StreamConfigError(f"[{_names(present)}] must be null when you set [{_names(self.legal)}]")


def _names(keys: Iterable[_Key]) -> str:
    return ",".join(key.name for key in keys)


_OPTION_RULES = {
    # Without `scan.mode` the first rule that an option implies is taken, in Java's order.
    "from-timestamp": _OptionRule(
        implied_by=(_MILLIS, _STRING),
        exactly_one=(_MILLIS, _STRING),
        excluded=(_SNAPSHOT, _FILE_CREATION, _TAG, *RANGE_KEYS),
        legal=(_MILLIS, _STRING),
        millis=_timestamp,
    ),
    "from-snapshot": _OptionRule(
        implied_by=(_SNAPSHOT, _TAG, _WATERMARK, _VERSION),
        exactly_one=(_SNAPSHOT, _TAG, _WATERMARK),
        excluded=(_MILLIS, _STRING, _FILE_CREATION, *RANGE_KEYS),
        legal=(_SNAPSHOT, _TAG),
        has_snapshot=True,
    ),
    "from-file-creation-time": _OptionRule(
        implied_by=(_FILE_CREATION,),
        required=_FILE_CREATION,
        excluded=(_SNAPSHOT, _MILLIS, _TAG, *RANGE_KEYS),
        legal=(_FILE_CREATION,),
        millis=_FILE_CREATION.of,
    ),
    "from-creation-timestamp": _OptionRule(
        implied_by=(_CREATION,),
        absent=_ALL_BUT_CREATION,
        required=_CREATION,
        millis=_CREATION.of,
    ),
    "incremental": _OptionRule(
        implied_by=RANGE_KEYS,
        exactly_one=RANGE_KEYS,
        excluded=(_SNAPSHOT, _MILLIS, _STRING, _FILE_CREATION, _TAG),
        legal=RANGE_KEYS,
    ),
    "from-snapshot-full": _OptionRule(
        required=_SNAPSHOT,
        excluded=(_MILLIS, _STRING, _FILE_CREATION, _TAG, *RANGE_KEYS),
        legal=(_SNAPSHOT,),
        has_snapshot=True,
    ),
    "latest-delta": _OptionRule(absent=(*_ALL_BUT_CREATION, _CREATION, _WATERMARK, _VERSION)),
}
_OTHER_MODES = _OptionRule(absent=_ALL_BUT_CREATION)


def start_of_options(options: TableOptions) -> Start:
    """The start that a table's options ask for; latest-full when they ask for none.

    Follows `CoreOptions.startupMode`, `SchemaValidation.validateStartupMode` and
    `AbstractDataTableScan.createStartingScanner`.

    Raises:
        StreamConfigError: The options contradict each other, or ask for what only batch reads can do.
    """
    options = _with_version(options)
    mode = checked_mode(options)
    rule = _OPTION_RULES.get(mode, _OTHER_MODES)
    if mode == "latest-delta":
        raise StreamConfigError("'latest-delta' scan mode is only supported for batch sources.")
    if mode == "incremental":
        raise StreamConfigError(
            "Cannot read incremental in streaming mode.",
            advice="Give the range to the builder, with_range(...), and leave out the option.",
            option="with_range",
        )
    if mode == "from-snapshot" and _TAG.set_as(options):
        raise StreamConfigError(
            "Cannot scan from tag in streaming mode.",
            advice="Give the tag to the builder: with_start(tag=...).",
            option="with_start: tag",
        )
    if mode == "from-snapshot" and _WATERMARK.set_as(options):
        raise StreamConfigError("Cannot scan from watermark in streaming mode.")
    snapshot_id = _SNAPSHOT.of(options) if rule.has_snapshot else None
    return Start(StartMode(mode), snapshot_id=snapshot_id, millis=rule.millis and rule.millis(options))


def checked_mode(options: TableOptions) -> str:
    """The mode that a table's options ask for, of a stream or a batch.

    Raises:
        StreamConfigError: The options contradict each other, or an option that the mode needs is missing.
    """
    mode = _mode(options)
    _OPTION_RULES.get(mode, _OTHER_MODES).check(options, mode)
    return mode


def _with_version(options: TableOptions) -> TableOptions:
    """`scan.version` of digits is a snapshot id, as in Java's `TimeTravelUtil.adaptScanVersion`; others name tags."""
    version = _VERSION.of(options)
    if version is None or not version.isdecimal() or _SNAPSHOT.set_as(options):
        return options
    return {**options, _SNAPSHOT.name: version}


def _mode(options: TableOptions) -> str:
    mode = option_keys.SCAN_MODE.of(options)
    if mode == "full":
        return "latest-full"
    if mode != "default":
        return mode
    for implied, rule in _OPTION_RULES.items():
        if any(each.set_as(options) for each in rule.implied_by):
            return implied
    return "latest-full"
