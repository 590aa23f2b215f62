"""What becomes of the files of a pick: which are merged into new ones, and which only move to another level.

As Java's `MergeTreeCompactTask`. Java's rules: docs/java-semantics.md#compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.compaction.live_files import LiveFile
from pypaimon.streaming.compaction.run_picking import Pick
from pypaimon.streaming.merge.runs import key_order

Section = tuple[LiveFile, ...]
"""Files whose keys overlap, directly or through each other; those of other sections have other keys."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Sections, in key order, that are merged into new files one after the other."""

    sections: tuple[Section, ...]

    @property
    def files(self) -> list[LiveFile]:
        """The files that it replaces."""
        return [file for section in self.sections for file in section]


@dataclass(frozen=True, slots=True)
class Move:
    """A file that goes to the level of the pick as it is."""

    file: LiveFile

    @property
    def files(self) -> list[LiveFile]:
        """It alone."""
        return [self.file]

    @property
    def sections(self) -> tuple[Section, ...]:
        """It alone."""
        return ((self.file,),)


Step = Rewrite | Move


def steps(pick: Pick, options: CompactionOptions, must_rewrite: Callable[[LiveFile], bool]) -> Iterator[Step]:
    """What is to be done; a file that is where it belongs, and is large enough, is in no step.

    Args:
        pick: What is compacted.
        options: The table's.
        must_rewrite: Whether a file may not just move to the level of the pick; called right before its step comes.
    """
    small: list[Section] = []

    def one(file: LiveFile) -> Iterator[Step]:
        if options.force_rewrite or must_rewrite(file):
            yield Rewrite(((file,),))
        elif file.level != pick.level:
            yield Move(file)

    def flush() -> Iterator[Step]:
        # A single file is not worth a rewrite.
        if len(small) == 1 and len(small[0]) == 1:
            yield from one(small[0][0])
        elif small:
            yield Rewrite(tuple(small))
        small.clear()

    for section in sections(pick.files):
        if len(section) > 1 or section[0].size < options.small_bytes:
            small.append(section)
        else:
            yield from flush()
            yield from one(section[0])
    yield from flush()


def sections(files: Sequence[LiveFile]) -> Iterator[Section]:
    """Files cut where no key spans, in key order."""
    bounds = [(key_order(file.read.min_key), key_order(file.read.max_key), file) for file in files]
    bounds.sort(key=lambda bound: bound[:2])
    section: list[LiveFile] = []
    end: tuple[object, ...] = ()
    for smallest, largest, file in bounds:
        if section and smallest > end:
            yield tuple(section)
            section = []
        end = max(end, largest) if section else largest
        section.append(file)
    if section:
        yield tuple(section)
