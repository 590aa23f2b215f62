"""What a member of a group asks for. Its code yields these, and whoever runs it sends the answers in.

What a store cannot answer is thrown in as `StoreError`: what was asked for may have been done, or may be done later.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from pypaimon.streaming.model.position import Position

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ListNames:
    """The files in the directory of the group: a mapping of names to seconds of the store's clock, or None."""


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """The bytes of each of some files, read at the same time; None: there is none."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreateFile:
    """Make a file where none of the name is: whether it has this content now."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class DeleteFiles:
    """Delete files; those that are missing are no error."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fence:
    """The file that keeps snapshots for the group, as it was found.

    Attributes:
        floor: The first snapshot that is kept.
        owner: Whose it is; None: of Java, or of a reset.
        seen: What the store has to know to replace it.
        fingerprint: Of the snapshot before the floor, where it is known.
    """

    floor: int
    owner: str | None
    seen: Any = None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class LookAtFence:
    """A `Fence`; None: there is none."""


@dataclass(frozen=True, slots=True)
class WriteFence:
    """Replace the fence that was found, None: make one. Whether it was done; False: it is another one by now."""

    floor: int
    found: Fence | None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class FindStart:
    """The position at which a stream with the group's settings would begin now."""


@dataclass(frozen=True, slots=True)
class Stands:
    """Whether a stream could still begin at a position."""

    position: Position


@dataclass(frozen=True, slots=True)
class ReportDeleted:
    """The files of the group were deleted: raises the error that says so, or that the table is gone."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait until a time of the member's clock, or until it is woken."""

    until: float


Request: TypeAlias = (
    ListNames
    | ReadFiles
    | CreateFile
    | DeleteFiles
    | LookAtFence
    | WriteFence
    | FindStart
    | Stands
    | ReportDeleted
    | Pause
)
Steps: TypeAlias = Generator[Request, Any, T]
"""Code that asks for what it needs, and comes to a result."""
