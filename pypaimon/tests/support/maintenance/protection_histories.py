"""Histories that end well as long as one protection is there; see `mutants`."""

from __future__ import annotations

import json
from functools import partial

from pypaimon.streaming import MaintenancePolicy
from pypaimon.streaming.consumers.consumer_manager import consumers_of
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from pypaimon.streaming.maintenance.expiry_planner import EXPIRED
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.groups.invariants import BrokenLawError
from support.maintenance.simulated_table import ROOT
from support.maintenance.stage import Stage

COUNTED = {
    "changelog_producer": "input", "changelog__num_retained__max": "9", "snapshot__num_retained__max": "1",
    "snapshot__num_retained__min": "1", "changelog__num_retained__min": "1",
}  # fmt: skip
EXPIRING = {"consumer__expiration_time": "1 d"}


def tag_too_late(stage: Stage) -> None:
    """Its snapshot expires just before it is written."""
    stage.commit("a")
    stage.compact("a", "b")
    stage.commit("c")
    stage.when("write", "/tag/tag-t", stage.expire)
    stage.create_tag("t", 1)
    stage.check_roots()


def rollback_in_a_run(stage: Stage) -> None:
    """It is refused: the snapshot may be about to go, as the plan of the run says."""
    stage.commit("a")
    stage.compact("a", "b")
    stage.commit("c")
    stage.when("delete", "/snapshot/snapshot-", lambda: stage.roll_back(snapshot=1))
    stage.expire()
    stage.check_roots()


def run_in_a_rollback(stage: Stage) -> None:
    """The snapshot to which a table is rolled back does not expire meanwhile."""
    stage.commit("a")
    stage.compact("a", "b")
    stage.commit("c")
    stage.when("delete", "/snapshot/LATEST", stage.expire)
    stage.roll_back(snapshot=1)
    stage.check_roots()


def rollback_to_damage(stage: Stage) -> None:
    """It is refused: a file is missing."""
    stage.commit("a")
    stage.compact("a", "b")
    stage.lose("bucket-0/data-a")
    stage.laws.forget(f"{ROOT}/snapshot/snapshot-1")
    stage.roll_back(snapshot=1)
    stage.check_roots()


def late_save(stage: Stage) -> None:
    """An expired consumer saves just before its file is deleted: it finds out that it has come too late."""
    path = f"{ROOT}/consumer/consumer-c"

    def save() -> None:
        if json.loads(stage.objects.get(path) or b"{}").get("owner") == EXPIRED:
            del stage.laws.held["c"]
        else:
            stage.consume("c", 2)

    stage.commit("a")
    stage.consume("c", 2)
    stage.commit("b")
    stage.pass_days(3)
    stage.when("delete", "/consumer/consumer-c", save)
    stage.expire()


def save_after_the_mark(stage: Stage) -> None:
    """Without conditional writes a reader may look before its consumer is marked, and save after it."""
    stage.compares = False

    def save() -> None:
        # At the next request for the file, whichever it is.
        for kind in ("read", "delete"):
            stage.when(kind, "/consumer/consumer-c", partial(stage.consume, "c", 2))

    stage.commit("a")
    stage.consume("c", 2)
    stage.commit("b")
    stage.pass_days(3)
    stage.when("write", "/consumer/consumer-c", save)
    stage.expire()


def save_without_progress(stage: Stage) -> None:
    """A reader that has nothing to read saves again, just before its consumer is marked as expired."""
    stage.compares = True

    def save() -> None:
        consumers = consumers_of(TableDirectory.of(stage.handle()))
        name = ConsumerName.parse("c")
        found = consumers.look(name)
        assert found is not None
        consumers.replace(name, *found)
        stage.laws.saved["c"] = stage.objects.now

    stage.commit("a")
    stage.consume("c", 2)
    save()
    stage.commit("b")
    stage.pass_days(3)
    stage.when("write", "/consumer/consumer-c", save)
    stage.expire()


def kept_changelogs(stage: Stage) -> None:
    for name in "abc":
        stage.commit(name)
    stage.expire()
    if stage.laws.changelog_ids() != [1, 2]:
        raise BrokenLawError(f"M2: {stage.laws.changelog_ids()} are kept")


def slow_changelogs(stage: Stage) -> None:
    """Another run expires a snapshot and then its changelog, just before this run writes the changelog."""
    fewer = MaintenancePolicy(min_snapshots=1, max_snapshots=1, min_changelogs=1, max_changelogs=1)

    def expire() -> None:
        stage.expire()
        stage.expire(fewer)

    for name in "abc":
        stage.commit(name)
    stage.when("write", "/changelog/changelog-1", expire)
    stage.expire()
    stage.check_roots()
