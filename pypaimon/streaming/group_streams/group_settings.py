"""`GroupSettings`: what the members of a group are told, and what of a stream and its table cannot be a group's."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.consumers.groups.group_times import GroupTimes
from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.options.slot_rule import SlotRule
from pypaimon.streaming.options.start import chooses_files
from pypaimon.streaming.options.stream_options import CommitMode, OnExpired, StreamOptions
from pypaimon.streaming.scanning.parts import ScanParts

OnSlots = Callable[[tuple[int, ...]], object]
_LEAST_SESSION, _POLLS_PER_SESSION = 5.0, 1.7
_SESSIONS_PER_EXPIRATION = 4


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What a member is told.

    Attributes:
        group_id: Of the group.
        member: Name under which it comes back to its slots; None: it has none.
        session_timeout: Seconds of silence after which the others take over; None: as the poll interval says.
        commit: Who confirms.
        max_hold: Seconds that a slot which is to move waits for the reader; None: as long as it takes.
        on_assigned: Called with slots that the member has from now on.
        on_revoked: Called with slots that it is to give back.
        on_lost: Called with slots that others have taken.
    """

    group_id: str
    member: str | None = None
    session_timeout: float | None = None
    commit: CommitMode = CommitMode.AUTO
    max_hold: float | None = None
    on_assigned: OnSlots | None = None
    on_revoked: OnSlots | None = None
    on_lost: OnSlots | None = None

    @property
    def has_callbacks(self) -> bool:
        """Whether anything is to be called."""
        return not (self.on_assigned is self.on_revoked is self.on_lost is None)


def checked(parts: ScanParts, schema: TableSchema, settings: GroupSettings) -> tuple[GroupTimes, SlotRule]:
    """The times of the group and the rule of its slots, if it can be.

    Raises:
        StreamConfigError: The stream has a setting that a group has not.
        UnsupportedTableError: The table cannot be divided.
    """
    options, traits = parts.options, parts.planner.traits
    _refuse_settings(options)
    if traits.primary_key and not set(schema.partition_keys) <= set(schema.primary_keys):
        raise UnsupportedTableError(
            "with_group: the primary key is without the partition columns, so that a key moves from partition to "
            "partition, and its rows from member to member. Read the table with with_consumer_id(...)."
        )
    if traits.primary_key and options.read_overwrite:
        raise StreamConfigError(
            "with_group: overwrites of a table with primary keys are not read in a group, where rows of before and "
            "after may come to different members. Leave with_on_overwrite('read') out."
        )
    poll = options.poll_interval_ms / 1000
    session = settings.session_timeout or max(_POLLS_PER_SESSION * poll, _LEAST_SESSION)
    millis = OptionValues(schema.options).duration_millis("consumer.expiration-time")
    expiration = None if millis is None else millis / 1000
    if expiration is not None and expiration < _SESSIONS_PER_EXPIRATION * session:
        raise StreamConfigError(
            f"with_group: consumer.expiration-time is {expiration:g} s, and a session {session:g} s: what the group "
            f"needs may expire before its members notice that one is gone. Give the option {_SESSIONS_PER_EXPIRATION} "
            "sessions or more, or with_group(..., session_timeout=...) less."
        )
    return GroupTimes(session, poll, None if expiration is None else expiration / 3), SlotRule.of(traits, schema)


def settings_text(options: StreamOptions) -> str:
    """What decides which rows come, as text: equal for streams that read alike."""
    return json.dumps(
        {
            "start": options.start.text,
            "filter": None if options.predicate is None else _text(options.predicate),
            "unmatched": options.unmatched.value,
            "raw": options.raw,
            "read_overwrite": options.read_overwrite,
        },
        separators=(",", ":"),
    )


def check_former(settings: str, own: StreamOptions) -> None:
    """Refuse to finish a first plan whose files another start has chosen.

    Args:
        settings: Of the members that have begun it, as `settings_text` made them.
        own: The settings of the member that is to finish it.

    Raises:
        StreamConfigError: They differ in a start by the creation time of files.
    """
    start = json.loads(settings)["start"]
    if start != own.start.text and any(map(chooses_files, (start, own.start.text))):
        raise StreamConfigError(
            f"the group is in its first plan, whose files the start {start!r} has chosen; this reader has "
            f"{own.start.text!r}. Give it the same start, or begin another group."
        )


def _refuse_settings(options: StreamOptions) -> None:
    for given, what in (
        (options.consumer is not None, "with_consumer_id or the option consumer-id: the group saves progress"),
        (options.shard is not None, "with_shard: the group divides the table"),
        (options.bucket_filter is not None, "chosen buckets: the group divides the table"),
        (options.between is not None, "a range: give with_start(...) and with_end(...) in its place"),
        (options.end_watermark is not None, "an end by watermark (with_end or scan.bounded.watermark)"),
        (options.chain is not None, "a chain table: its first plan is made of two branches"),
        (options.follow_up_scanner is not None, "with_follow_up_scanner: the members may have different ones"),
        (options.on_expired is not OnExpired.FAIL, "with_on_expired: one member would begin anew, the others not"),
        (
            options.start.created_after(in_first_plan=False) is not None,
            "a start from a time at which files were created",
        ),
    ):
        if given:
            raise StreamConfigError(f"with_group does not go with {what}. Leave it out.")


def _text(predicate: Any) -> Any:
    parts = getattr(predicate, "literals", None) or ()
    return [
        predicate.method,
        predicate.field,
        [_text(part) if hasattr(part, "method") else repr(part) for part in parts],
    ]
