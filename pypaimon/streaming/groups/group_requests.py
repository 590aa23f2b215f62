"""The requests of a member. Its code yields them, and a driver sends the answers in.

So the protocol runs without a store, a thread or a clock of its own: on a table by `GroupDirectory` and `MemberThread`,
in tests by a simulation. If the store fails, the driver throws `StoreError` in; the request may have been carried out
then, or may still be.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from pypaimon.streaming.model.position import Position

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ListNames:
    """List the files of the group. Answer: their names, with the seconds of the store's clock or None."""


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """Read several files. Answer: the content of each; None if it is missing."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreateFile:
    """Create a file unless the name is taken. Answer: whether the file has this content now.

    True also if it had this content before: a request whose answer was lost can be repeated.
    """

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class DeleteFiles:
    """Delete files, if they are there."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RetentionPin:
    """The consumer file that keeps the snapshots which the group needs from expiring.

    Attributes:
        owner: Which group wrote it; None if Java or a reset did.
    """

    floor: int
    owner: str | None
    seen: Any = None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class ReadPin:
    """Answer: the `RetentionPin`; None if it is missing."""


@dataclass(frozen=True, slots=True)
class WritePin:
    """Replace the pin that was `found` (None: create it). Answer: False if it is another one by now."""

    floor: int
    found: RetentionPin | None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class FindStart:
    """Answer: the position where a stream with the group's settings would begin now."""


@dataclass(frozen=True, slots=True)
class CheckStart:
    """Answer: whether a stream can still begin at a position."""

    position: Position


@dataclass(frozen=True, slots=True)
class ReportDeleted:
    """The files of the group were deleted. Raises the error that says so, or that the table was dropped."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait until a time of the member's clock, or until the member is woken."""

    until: float


Request: TypeAlias = (
    ListNames
    | ReadFiles
    | CreateFile
    | DeleteFiles
    | ReadPin
    | WritePin
    | FindStart
    | CheckStart
    | ReportDeleted
    | Pause
)
Steps: TypeAlias = Generator[Request, Any, T]
"""Code that yields requests and returns a result."""
