"""Shards of one table without buckets under random events: together they read every row once, from one start."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from pypaimon.streaming import ConsumerConflictError, EndOfScan, PositionExpiredError
from support.groups.shard_group import ShardedTable, ShardReader, read_by
from support.samples import SOAK

pytestmark = [pytest.mark.slow, pytest.mark.soak]

CHANGES = st.lists(st.sampled_from(["append", "append", "compact", "compact", "expire"]), min_size=1, max_size=4)


class ShardGroup(RuleBasedStateMachine):
    """Two or three shards start, read, save, die and start again; files are compacted, snapshots expire meanwhile.

    Snapshots expire by force too. Under the policy `full` one shard then begins again, and with it all of them; under
    `earliest` and `latest` it gives up rows of its own, and the others none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.site = ShardedTable(Path(self.directory.name) / "w")

    @initialize(changes=CHANGES, data=st.data())
    def create(self, changes: list[str], data: st.DataObject) -> None:
        self.site.append()
        self.change(changes)
        draw: Any = data.draw
        count = draw(st.sampled_from([2, 3]))
        start = draw(st.sampled_from(["latest-full", "latest-full", "compacted-full", "earliest"]))
        self.in_full = start != "earliest"
        limit = draw(st.sampled_from([None, 1, 2]))

        self.policy = draw(st.sampled_from(["full", "latest", "earliest"])) if self.in_full else "fail"

        def configure(builder: Any) -> Any:
            builder.with_on_expired(self.policy).with_catch_up(draw(st.sampled_from(MODES)))
            return builder.with_limits(max_splits=limit)

        self.earliest = self.site.table.earliest
        self.shards = [ShardReader(self.site, (index, count), start, configure) for index in range(count)]

    @rule(changes=CHANGES)
    def change(self, changes: list[str]) -> None:
        """Commit, compact, or expire what no consumer needs."""
        for change in changes:
            getattr(self.site, change)()

    @rule()
    def expire_by_force(self) -> None:
        """Expire all snapshots but the latest, if the shards may begin again."""
        if self.in_full:
            self.site.expire(by_force=True)

    @rule(number=st.integers(0, 2), saves=st.booleans())
    def step(self, number: int, saves: bool) -> None:
        """A plan, perhaps saved at once; after a conflict it is started again, as the error says."""
        shard = self.shards[number % len(self.shards)]
        try:
            if shard.scan is None:
                shard.open()
            shard.expects_a_gap(self.policy)
            shard.step()
            if saves:
                shard.commit()
        except (ConsumerConflictError, EndOfScan, PositionExpiredError):
            # Also inside a plan that was cut and whose snapshot has expired.
            shard.die()

    @rule(number=st.integers(0, 2))
    def die(self, number: int) -> None:
        """A process ends, perhaps with a plan in hand."""
        self.shards[number % len(self.shards)].die()

    @rule(number=st.integers(0, 2))
    def start_again(self, number: int) -> None:
        """A process takes over from one that still runs."""
        self.shards[number % len(self.shards)].open()

    def teardown(self) -> None:
        """At the end every shard reads all that is left, and all of them have read each row once."""
        try:
            # A new start ends the readers of the old one. Each is started again until all have begun there.
            for shard in [*self.shards * 2] if hasattr(self, "shards") else []:
                shard.die()
                shard.catch_up(self.policy)
            if hasattr(self, "shards"):
                self.check()
        finally:
            for shard in getattr(self, "shards", []):
                shard.die()
            self.directory.cleanup()

    def check(self) -> None:
        read = read_by(self.shards)
        wanted = {key: 1 for key, number in self.site.written.items() if self.in_full or number >= self.since()}
        wrong = {key: read[key] for key in {*read, *wanted} if read[key] != wanted.get(key)}
        if self.policy in ("latest", "earliest"):
            wrong = {key: count for key, count in wrong.items() if count or not self.is_given_up(key)}
        assert not wrong, (wrong, self.site.written, [shard.plans for shard in self.shards])
        assert {name.rpartition(".")[2] for name in self.site.consumers()} == {
            f"shard-{index}-of-{len(self.shards)}" for index in range(len(self.shards))
        }

    def is_given_up(self, key: int) -> bool:
        """Whether the shard whose row it is has expired before it read it. In a full state it may be any shard's."""
        number = self.site.written[key]
        full = [shard.first_snapshot for shard in self.shards if shard.begins_in_full]
        if not full or number <= max(first for first in full if first is not None):
            return any(number < shard.given_up for shard in self.shards)
        return number < self.shards[key % len(self.shards)].given_up

    def since(self) -> int:
        """Where a group that starts at the earliest snapshot began: there is nothing before what it read first."""
        keys = read_by(self.shards)
        return min((number for key, number in self.site.written.items() if key in keys), default=self.site.table.latest)


MODES = ["auto", "replay"]


def test_shards_read_every_row_once_from_one_start() -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        ShardGroup,
        settings=settings(
            max_examples=500 if SOAK else 5,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
