"""`GroupSettings`: the arguments of `new_group`, and the checks whether a stream and its table can be a group's."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pypaimon.streaming.consumers.consumer_names import check_consumer_id
from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.groups.group_view import GroupTimes
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.arguments import choice, finite_seconds
from pypaimon.streaming.options.slot_rule import SlotRule
from pypaimon.streaming.options.start import chooses_files
from pypaimon.streaming.options.stream_options import CommitMode, OnExpired, StreamOptions
from pypaimon.streaming.paimon.internals import TableSchema
from pypaimon.streaming.scanning.parts import ScanParts
from pypaimon.streaming.spec.resolve import ResolvedStream

OnSlots = Callable[[tuple[int, ...]], object]
_MIN_SESSION, _POLLS_PER_SESSION = 5.0, 1.7
_SESSIONS_PER_EXPIRATION = 4


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of a member.

    Attributes:
        member: Under this name the member gets its slots back after a restart; None if it has none.
        session_timeout: Seconds without a heartbeat after which the others take over; None: from the poll interval.
        max_hold: Seconds for which a revoked slot waits for the reader; None: it waits forever.
        on_assigned: Called with slots that the member got.
        on_revoked: Called with slots that the member has to give back.
        on_lost: Called with slots that other members have taken.
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
        return not (self.on_assigned is self.on_revoked is self.on_lost is None)


def group_settings(
    group_id: str,
    member: str | None,
    session_timeout: float | timedelta | None,
    commit: str,
    max_hold: float | timedelta | None,
    **callbacks: Any,
) -> GroupSettings:
    """The arguments of `StreamReadBuilder.new_group`, checked."""
    check_consumer_id(group_id)
    if member is not None:
        check_consumer_id(member)
    timeout, hold = (
        None if value is None else finite_seconds(f"new_group: {name}", value, above_zero=True)
        for name, value in (("session_timeout", session_timeout), ("max_hold", max_hold))
    )
    for name, call in callbacks.items():
        if call is not None and not callable(call):
            raise StreamConfigError(f"new_group: {name}: expected a function, got {call!r}")
    mode = choice(CommitMode, "new_group: commit", commit)
    return GroupSettings(group_id, member, timeout, mode, hold, **callbacks)


def times_and_rule(parts: ScanParts, schema: TableSchema, settings: GroupSettings) -> tuple[GroupTimes, SlotRule]:
    """The timeouts of the group and the rule of its slots, if the stream and the table allow a group."""
    options, traits = parts.options, parts.planner.traits
    _check_options(options)
    if traits.primary_key and not set(schema.partition_keys) <= set(schema.primary_keys):
        raise UnsupportedTableError(
            "new_group: the primary key does not contain the partition columns. A key can move to another partition, "
            "and its rows to another member.",
            advice="Read the table with with_consumer_id(...).",
            option="with_consumer_id",
        )
    if traits.primary_key and options.read_overwrite:
        raise StreamConfigError(
            "new_group: a group does not read overwrites of a table with primary keys, because the rows before and "
            "after may go to different members. Leave with_on_overwrite('read') out."
        )
    poll = options.poll_interval_ms / 1000
    session = settings.session_timeout or max(_POLLS_PER_SESSION * poll, _MIN_SESSION)
    millis = option_keys.CONSUMER_EXPIRATION_TIME.of(schema.options)
    expiration = None if millis is None else millis / 1000
    if expiration is not None and expiration < _SESSIONS_PER_EXPIRATION * session:
        raise StreamConfigError(
            f"new_group: consumer.expiration-time is {expiration:g} s, and a session {session:g} s: what the group "
            f"needs may expire before its members notice that one is gone. Set the option to "
            f"{_SESSIONS_PER_EXPIRATION} sessions or more, or pass a shorter session_timeout."
        )
    return GroupTimes(session, poll, None if expiration is None else expiration / 3), SlotRule.of(traits, schema)


def settings_text(stream: ResolvedStream) -> str:
    """The settings that decide which rows come, as text: equal for streams that read the same."""
    options = stream.options
    return json.dumps(
        {
            "start": options.start.text,
            # By the ids of fields, because columns may exchange their names.
            "filter": stream.scope.filter,
            "unmatched": options.unmatched.value,
            "raw": options.raw,
            "read_overwrite": options.read_overwrite,
        },
        separators=(",", ":"),
    )


def check_first_plan(settings: str, own: StreamOptions) -> None:
    start = json.loads(settings)["start"]
    if start != own.start.text and (chooses_files(start) or chooses_files(own.start.text)):
        raise StreamConfigError(
            f"the group is in its first plan, whose files were chosen by the start {start!r}; this reader has "
            f"{own.start.text!r}. Give it the same start, or start another group."
        )


def _check_options(options: StreamOptions) -> None:
    for given, what in (
        (options.consumer is not None, "with_consumer_id or the option consumer-id: the group saves progress"),
        (options.shard is not None, "with_shard: the group divides the table"),
        (options.bucket_filter is not None, "chosen buckets: the group divides the table"),
        (options.between is not None, "a range: use with_start(...) and with_end(...) instead"),
        (options.end_watermark is not None, "an end by watermark (with_end or scan.bounded.watermark)"),
        (options.chain is not None, "a chain table: its first plan is made of two branches"),
        (options.follow_up_scanner is not None, "with_follow_up_scanner: the members may have different ones"),
        (options.on_expired is not OnExpired.FAIL, "with_on_expired: one member would start again, the others not"),
        (
            options.start.created_after(in_first_plan=False) is not None,
            "a start from a time at which files were created",
        ),
    ):
        if given:
            raise StreamConfigError(f"new_group cannot be combined with {what}. Leave it out.")
