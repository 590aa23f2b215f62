"""Which sorted runs of a bucket are compacted, and to which level: a function of the runs, the options and the time.

As Java's `UniversalCompaction` and its callers do. Java's rules: docs/java-semantics.md#compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.compaction.live_files import LiveFile, local_millis
from pypaimon.streaming.merge import Deduplicate, merge_engine
from pypaimon.streaming.merge.level_changes import ChangeRule
from pypaimon.streaming.merge.runs import key_order
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.table_kinds import ChangelogProducer, MergeEngineKind
from pypaimon.streaming.writing.files.file_options import FileOptions


@dataclass(frozen=True, slots=True)
class LevelRun:
    """A sorted run: one file of level 0, or all files of a level above it."""

    level: int
    files: tuple[LiveFile, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class Pick:
    """Runs that are compacted together."""

    level: int
    runs: tuple[LevelRun, ...]
    top: bool  # Whether no older run is left above them, so that deletes need not be kept
    full: bool = False

    @property
    def files(self) -> list[LiveFile]:
        return [file for run in self.runs for file in run.files]


def pick_full(
    runs: Sequence[LevelRun], options: CompactionOptions, expired: Callable[[LiveFile], bool] = lambda file: False
) -> Pick | None:
    """All runs to the highest level; None: they are there already, and no row of them is deleted or expired."""
    top = _top_level(runs, options)
    on_top = len(runs) == 1 and runs[0].level == top and not options.force_rewrite
    if not runs or (on_top and not any(file.deletions is not None or expired(file) for file in runs[0].files)):
        return None
    return Pick(top, tuple(runs), top=True, full=True)


def pick_needed(
    runs: Sequence[LevelRun], options: CompactionOptions, now: datetime, *, up_level_0: bool = False
) -> Pick | None:
    """The runs that are due, from the newest one on; None: none. Files of level 0 are always due (`up_level_0`) if
    readers do not see them there.
    """
    picked = _picked(runs, options, now)
    if picked is None and up_level_0:
        count = sum(run.level == 0 for run in runs)
        picked = _by_ratio(runs, options, now, count, forced=True) if count else None
    if picked is None or (len(picked.files) == 1 and picked.files[0].level == picked.level):
        return None
    return picked


def _picked(runs: Sequence[LevelRun], options: CompactionOptions, now: datetime) -> Pick | None:
    if _all_are_due(runs, options, now):
        return _first(runs, len(runs), options)
    if len(runs) >= options.trigger and runs:
        newer = sum(run.size for run in runs[:-1])
        if newer * 100 > options.size_amplification * runs[-1].size:
            return _first(runs, len(runs), options)
        picked = _by_ratio(runs, options, now, 1)
        if picked is not None:
            return picked
    if len(runs) > options.trigger:
        return _by_ratio(runs, options, now, len(runs) - options.trigger + 1)
    return None


def _all_are_due(runs: Sequence[LevelRun], options: CompactionOptions, now: datetime) -> bool:
    if len(runs) <= 1:
        return False
    top = _top_level(runs, options)
    if options.interval_millis is not None:
        # The newest file of the highest level shows when the whole bucket was last compacted.
        made = [file.made_millis for run in runs if run.level == top for file in run.files]
        passed = None if not made else local_millis(now) - max(made)
        if passed is None or passed > options.interval_millis:
            return True
    if options.total_bytes is not None and sum(run.size for run in runs) < options.total_bytes:
        return True
    below = sum(run.size for run in runs if run.level != top)
    return options.incremental_bytes is not None and below > options.incremental_bytes


def _by_ratio(
    runs: Sequence[LevelRun], options: CompactionOptions, now: datetime, count: int, *, forced: bool = False
) -> Pick | None:
    off_peak = 0 if options.off_peak is None else options.off_peak.ratio_at(now.hour)
    allowed = 100 + options.size_ratio + off_peak
    size = sum(run.size for run in runs[:count])
    several = forced or count > 1
    for run in runs[count:]:
        # Once there are several, small levels at the bottom are taken along.
        if size * allowed / 100 < run.size and (not several or run.level > 1):
            break
        size += run.size
        count += 1
        several = True
    return _first(runs, count, options) if several else None


def _first(runs: Sequence[LevelRun], count: int, options: CompactionOptions) -> Pick:
    """The first runs, to the level below that of the next run, but never to level 0."""
    level = _top_level(runs, options) if count == len(runs) else max(0, runs[count].level - 1)
    if level == 0:
        for run in runs[count:]:
            count += 1
            if run.level:
                level = run.level
                break
    if count == len(runs):
        level = _top_level(runs, options)
    # Deletes are needed as long as an older record may be on a higher level.
    return Pick(level, tuple(runs[:count]), top=level >= max(run.level for run in runs))


def _top_level(runs: Sequence[LevelRun], options: CompactionOptions) -> int:
    """The highest level. It may be higher than the options say, if they were changed."""
    return max([options.top_level, *(run.level for run in runs)])


def level_runs(files: Iterable[LiveFile]) -> list[LevelRun]:
    """The runs of a bucket: level 0 from the newest file to the oldest, then level by level upwards."""
    first: list[LiveFile] = []
    above: dict[int, list[LiveFile]] = {}
    for file in files:
        (above.setdefault(file.level, []) if file.level else first).append(file)
    first.sort(key=_age)
    runs = [LevelRun(0, (file,)) for file in first]
    runs += [LevelRun(level, tuple(sorted(above[level], key=_least_key))) for level in sorted(above)]
    return runs


def _least_key(file: LiveFile) -> tuple[Any, ...]:
    return key_order(file.read.min_key)


def _age(file: LiveFile) -> tuple[int, int, int, str]:
    read = file.read
    # As in Java, down to the name, because two files may have the same sequence numbers.
    return -read.max_sequence_number, read.min_sequence_number, file.made_millis, file.name


@dataclass(frozen=True, slots=True)
class ChangelogMode:
    """What the compactions of one table must find out about changes of rows."""

    producer: ChangelogProducer  # The table's `changelog-producer`
    engine: MergeEngineKind
    # Whether records of level 0 are merged with those above the output level, so that neither readers nor the changelog
    # need level 0 any more
    looks_up: bool
    newest_wins: bool  # Whether the latest record of a key is its row, whatever the record contains
    replaces: bool  # Whether a record replaces the whole row, so that the older row need not be read
    compared: tuple[str, ...] | None  # As in `ChangeRule`
    vectors: bool  # Whether deletion vectors mark replaced rows, so that readers need not merge
    # Whether deletes stay on every level: those of a branch of a chain table delete rows of the other branch
    keeps_deletes: bool

    @staticmethod
    def of(table: PaimonTable) -> ChangelogMode:
        options, producer, engine = table.options, table.traits.producer, table.traits.merge_engine
        vectors = table.is_primary_key_table and table.traits.deletion_vectors
        lookup = producer is ChangelogProducer.LOOKUP or engine.keeps_oldest or vectors
        lookup = lookup or option_keys.FORCE_LOOKUP.of(options)
        compared = None
        if option_keys.CHANGELOG_PRODUCER_ROW_DEDUPLICATE.of(options):
            ignored = option_keys.CHANGELOG_PRODUCER_ROW_DEDUPLICATE_IGNORE_FIELDS.of(options).split(",")
            left_out = {name.strip() for name in ignored}
            compared = tuple(field.name for field in table.fields if field.name not in left_out)
        newest = engine.keeps_newest and not option_keys.SEQUENCE_FIELD.of(options)
        # A delete that is ignored leaves the older row.
        merging = merge_engine(table.schema)
        replaces = newest and not (isinstance(merging, Deduplicate) and merging.ignore_delete)
        full = producer is ChangelogProducer.FULL_COMPACTION
        chained = option_keys.CHAIN_TABLE_ENABLED.of(options)
        return ChangelogMode(producer, engine, lookup and not full, newest, replaces, compared, vectors, chained)

    @property
    def full(self) -> bool:
        return self.producer is ChangelogProducer.FULL_COMPACTION

    @property
    def writes(self) -> bool:
        return self.full or self.producer is ChangelogProducer.LOOKUP

    def rule(self, pick: Pick, files: Sequence[LiveFile], options: CompactionOptions) -> ChangeRule | None:
        """How files of a pick are merged to find changes; None: they make no changes."""
        if self.full and pick.level >= options.top_level:
            return ChangeRule(pick.level, by_lookup=False, compared=self.compared)
        if self.looks_up and any(file.level == 0 for file in files):
            return ChangeRule(
                pick.level,
                by_lookup=True,
                keeps_first=self.engine.keeps_oldest,
                compared=self.compared,
                replaces=self.replaces and not self.writes,
            )
        return None

    def must_rewrite(self, pick: Pick, file: LiveFile, options: CompactionOptions, target: FileOptions) -> bool:
        """Whether a file must be rewritten, because its records are merged with those above the level of the pick."""
        if not self.looks_up or file.level:
            return False
        # A file that only moves keeps its format, and the level may have another one.
        if not file.name.endswith(f".{target.data.format}"):
            return True
        # Otherwise the file moves, and is only read for its changes.
        return not (self.newest_wins or (pick.top and pick.level >= options.top_level))

    def drops_deletes(self, pick: Pick) -> bool:
        """Whether a pick drops -D and -U: no older record is left, or it is marked by a deletion vector."""
        return not self.keeps_deletes and (pick.top or self.vectors)
