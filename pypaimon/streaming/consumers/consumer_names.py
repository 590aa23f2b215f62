"""`ConsumerName`: the names of consumer files, which say whose progress a file holds."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.json_fields import fields_of
from pypaimon.streaming.model.position import Phase, Position, position_from_value, position_to_value

CONSUMER_PREFIX = "consumer-"
"""Prefix of every consumer file. To Java every file with this prefix is a consumer."""

MAX_FILE_NAME_BYTES = 200
"""Limit for the name of a consumer file in UTF-8. File systems allow 255; temporary files need the rest."""

_PIN = ".first-plan"
_GROUP = ".group"
_NUMBER = r"(0|[1-9][0-9]{0,3})"
_SHARD = re.compile(rf"(.+)\.shard-{_NUMBER}-of-{_NUMBER}", re.DOTALL)
_MEMBER = re.compile(r"(.+?)\.member-(.+)", re.DOTALL)
_SEPARATORS = "/\\"
_CUT_BY_PATHS = "?#%;"
MAX_SHARDS = 9999


@dataclass(frozen=True, slots=True)
class ConsumerName:
    """What one consumer file is for. `text` is the id that Java sees.

    Attributes:
        consumer_id: The id that the user chose.
        shard: (i, n) for a reader of shard i of n, otherwise None.
        member: Name of a member, otherwise None.
        is_pin: Whether the file is the retention pin of a first full plan; otherwise it holds progress.
        group: Whether the file is the retention pin of a group, which saves its progress elsewhere.
    """

    consumer_id: str
    shard: tuple[int, int] | None = None
    member: str | None = None
    is_pin: bool = False
    group: bool = False

    @property
    def text(self) -> str:
        """`<id>`, `<id>.shard-i-of-n`, `<id>.member-<name>` or `<id>.group`, followed by `.first-plan` for a pin."""
        text = self.consumer_id + (_GROUP if self.group else "")
        if self.shard is not None:
            text += f".shard-{self.shard[0]}-of-{self.shard[1]}"
        if self.member is not None:
            text += f".member-{self.member}"
        return text + _PIN if self.is_pin else text

    @property
    def file_name(self) -> str:
        return CONSUMER_PREFIX + self.text

    @property
    def pin(self) -> ConsumerName:
        return replace(self, is_pin=True)

    @property
    def shared_start(self) -> ConsumerName:
        """The file of the start that all shards or members of the id share; for the plain id its pin."""
        return ConsumerName(self.consumer_id, is_pin=True)

    @property
    def progress(self) -> ConsumerName:
        return replace(self, is_pin=False)

    @property
    def sharding(self) -> frozenset[ConsumerName]:
        """The progress files that together cover the table: those of all n shards, or this one alone."""
        if self.shard is None:
            return frozenset((self.progress,))
        count = self.shard[1]
        return frozenset(replace(self, shard=(index, count), is_pin=False) for index in range(count))

    @staticmethod
    def parse(text: str) -> ConsumerName:
        is_pin = text.endswith(_PIN) and text != _PIN
        if is_pin:
            text = text[: -len(_PIN)]
        if match := _MEMBER.fullmatch(text):
            return ConsumerName(match[1], member=match[2], is_pin=is_pin)
        if (match := _SHARD.fullmatch(text)) and int(match[2]) < int(match[3]):
            return ConsumerName(match[1], shard=(int(match[2]), int(match[3])), is_pin=is_pin)
        if text.endswith(_GROUP) and text != _GROUP and not is_pin:
            return ConsumerName(text[: -len(_GROUP)], group=True)
        return ConsumerName(text, is_pin=is_pin)


def reader_name(
    consumer_id: str, *, shard: tuple[int, int] | None = None, member: str | None = None, some_buckets: bool = False
) -> ConsumerName:
    """The progress file of a reader."""
    check_consumer_id(consumer_id)
    if shard is not None and not 0 <= shard[0] < shard[1] <= MAX_SHARDS:
        raise StreamConfigError(f"shard {shard[0]} of {shard[1]}: expected 0 <= i < n <= {MAX_SHARDS}.")
    if member is not None:
        _check("member name", member)
        if shard is not None:
            raise StreamConfigError(
                f"consumer id {consumer_id!r}: a shard already has a file of its own; leave out member={member!r}."
            )
    elif some_buckets:
        raise StreamConfigError(
            f"consumer id {consumer_id!r} with chosen buckets: readers of other buckets would overwrite the progress. "
            "Give each reader a name: with_consumer_id(..., member='...')."
        )
    name = ConsumerName(consumer_id, shard, member)
    _check_length(name)
    return name


def check_consumer_id(consumer_id: str) -> None:
    if consumer_id == "":
        raise StreamConfigError("consumer id cannot be empty string.")
    _check("consumer id", consumer_id)
    _check_length(ConsumerName(consumer_id))


def _check_length(name: ConsumerName) -> None:
    size = len(name.pin.file_name.encode())
    if size > MAX_FILE_NAME_BYTES:
        raise StreamConfigError(
            f"consumer id {name.consumer_id!r} is too long: {name.pin.file_name!r} has {size} bytes; "
            f"the limit is {MAX_FILE_NAME_BYTES}."
        )


def _check(what: str, text: object) -> None:
    if not isinstance(text, str):
        raise StreamConfigError(f"{what}: expected str, got {text!r} ({type(text).__name__})")
    if not text.strip():
        raise StreamConfigError(f"{what} {text!r} cannot be blank.")
    if text in (".", ".."):
        raise StreamConfigError(f"{what} {text!r} would leave the directory of consumers.")
    if any(character in _SEPARATORS for character in text):
        raise StreamConfigError(f"{what} {text!r} would leave the directory of consumers: it cannot contain / or \\.")
    if any(character in _CUT_BY_PATHS or not character.isprintable() for character in text):
        raise StreamConfigError(
            f"{what} {text!r} cannot contain control characters or any of {' '.join(_CUT_BY_PATHS)}: "
            "some stores cut a path there, and two consumers would share one file."
        )
    parsed = ConsumerName.parse(text)
    if parsed != ConsumerName(text) or _SHARD.fullmatch(text) or text.startswith((_PIN, ".member-", ".shard-", _GROUP)):
        raise StreamConfigError(
            f"{what} {text!r} is reserved: .first-plan, .shard-i-of-n, .member-<name> and .group at the end of a name "
            "mark the files of first plans, shards, members and groups. Use another name."
        )


@dataclass(frozen=True, slots=True)
class SharedStart:
    """A start that one reader found, for all readers that begin at it, and for their restarts inside the first plan.

    Attributes:
        token: Distinguishes it from every other start. Progress files of readers that began with it carry the token.
        position: The start: the snapshot of a full plan, or the next snapshot.
        configured: The configured start that it was found for, as text: `latest-full`, `from-snapshot 5`...
        end: The last snapshot, if the stream ends at the one that was the latest; otherwise None.
    """

    token: str
    position: Position
    configured: str
    end: int | None = None

    @property
    def text(self) -> str:
        what = "the full state of" if self.position.phase is Phase.FULL else "before"
        return f"{what} snapshot {self.position.snapshot}"

    def to_value(self) -> dict[str, Any]:
        value = {"token": self.token, "position": position_to_value(self.position), "configured": self.configured}
        return value if self.end is None else {**value, "end": self.end}

    @staticmethod
    def from_value(value: object) -> SharedStart:
        """Read what `to_value` made.

        Raises:
            ValueError: The value is not a start.
        """
        fields = fields_of(value, "start")
        position = position_from_value(fields.get("position", dict))
        return SharedStart(
            fields.get("token", str), position, fields.get("configured", str), fields.optional("end", int)
        )
