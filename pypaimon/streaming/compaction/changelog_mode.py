"""`ChangelogMode`: whether the compactions of a table look up older rows, and make its changelog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.compaction.live_files import LiveFile
from pypaimon.streaming.compaction.run_picking import Pick
from pypaimon.streaming.merge import Deduplicate, merge_engine
from pypaimon.streaming.merge.level_changes import ChangeRule
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.table_kinds import ChangelogProducer, MergeEngineKind
from pypaimon.streaming.writing.files.file_options import FileOptions


@dataclass(frozen=True, slots=True)
class ChangelogMode:
    """What the compactions of one table must find out about changes of rows.

    Attributes:
        producer: The table's `changelog-producer`.
        engine: Its merge engine.
        looks_up: Whether records of level 0 are merged with those above the output level, so that neither readers nor
            the changelog need level 0 any more.
        newest_wins: Whether the latest record of a key is its row, whatever the record contains.
        replaces: Whether a record replaces the whole row, so that the older row need not be read.
        compared: As in `ChangeRule`.
        vectors: Whether deletion vectors mark replaced rows, so that readers need not merge.
    """

    producer: ChangelogProducer
    engine: MergeEngineKind
    looks_up: bool
    newest_wins: bool
    replaces: bool
    compared: tuple[str, ...] | None
    vectors: bool

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
        return ChangelogMode(producer, engine, lookup and not full, newest, replaces, compared, vectors)

    @property
    def full(self) -> bool:
        """Whether full compactions make the changelog."""
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
        if not file.name.endswith(f".{target.data.format}"):
            return True
        return not (self.newest_wins or (pick.top and pick.level >= options.top_level))

    def drops_deletes(self, pick: Pick) -> bool:
        """Whether a pick drops -D and -U: no older record is left, or it is marked by a deletion vector."""
        return pick.top or self.vectors
