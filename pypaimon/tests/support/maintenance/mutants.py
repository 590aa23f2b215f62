"""The protections of maintenance taken away, one at a time. A simulation is worth something if it finds that."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

import pytest

from pypaimon.streaming import MaintenancePolicy
from pypaimon.streaming.consumers.consumer_manager import EXPIRED, Consumer
from pypaimon.streaming.consumers.progress import Progress
from pypaimon.streaming.io.conditional_writes import ChangedFileError
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.maintenance import (
    branch_fast_forward,
    expiry_planner,
    kept_changelogs,
    needed_files,
    plan_execution,
    references,
    roots,
    table_rollback,
)
from pypaimon.streaming.maintenance.earliest_hint import EarliestHint
from pypaimon.streaming.maintenance.expiry import Protection
from pypaimon.streaming.maintenance.expiry_planner import ExpiryPlanner
from pypaimon.streaming.maintenance.needed_files import NeededFiles
from pypaimon.streaming.maintenance.orphans import OldFiles
from pypaimon.streaming.maintenance.plan_execution import PlanExecution
from pypaimon.streaming.maintenance.references import Candidates, References
from pypaimon.streaming.maintenance.tag_writer import TagWriter
from pypaimon.streaming.metadata.snapshots import SnapshotManager
from support.maintenance import protection_histories as histories
from support.maintenance.histories import cleaner_of_an_old_listing, position_without_a_file
from support.maintenance.race_histories import (
    changelog_comes_back,
    hint_of_a_finished_plan,
    hint_of_a_killed_run,
    hints_of_two_runs,
    replacement_in_a_run,
    replacement_never_finished,
    rollback_behind_a_second_run,
    rollback_behind_the_same_run,
    two_rollbacks,
)
from support.maintenance.stage import Stage
from support.maintenance.weather import BESIDE_JAVA, EXPIRES_CONSUMERS, Weather

maintain = importlib.import_module("pypaimon.streaming.maintenance.maintain")
Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutant:
    """A protection that is taken away.

    Attributes:
        what: What happens instead.
        laws: Invariants that it violates.
        patch: Takes it away.
        weather: Weather in which random histories find it soonest.
        history: A history that finds it; None: random ones do.
        options: Of the table of that history.
    """

    what: str
    laws: tuple[str, ...]
    patch: Patch
    weather: Weather = field(default_factory=Weather)
    history: Callable[[Stage], None] | None = None
    options: dict[str, str] = field(default_factory=dict)


def _set(owner: Any, name: str, value: Any) -> Patch:
    return lambda monkeypatch: monkeypatch.setattr(owner, name, value)


_KEPT, _EXPIRE, _REVIVED = (
    needed_files.kept_roots,
    PlanExecution._expire_visible,
    PlanExecution._delete_revived_changelogs,
)
_PICTURE, _SNAPSHOTS, _OLD = roots.picture_of, expiry_planner.expired_snapshots, OldFiles.__init__
_PINNED = table_rollback.pinned


def _set_all(owners: Sequence[Any], name: str, value: Any) -> Patch:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        for owner in owners:
            monkeypatch.setattr(owner, name, value)

    return patch


def _without(name: str) -> Patch:
    return _set_all((maintain, plan_execution), "kept_roots", lambda *args: replace(_KEPT(*args), **{name: ()}))


def _main_only(*args: Any, **options: Any) -> Any:
    return replace(_PICTURE(*args, **options), others=())


def _files_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Java does: a snapshot is found whose files are gone."""
    due: list[tuple[Any, ...]] = []
    monkeypatch.setattr(PlanExecution, "_expire_visible", lambda run, *args: due.append(args))
    monkeypatch.setattr(NeededFiles, "newly_needed", _never_again)

    def expire(run: Any, *args: Any) -> None:
        _REVIVED(run, *args)
        _EXPIRE(run, *due.pop())

    monkeypatch.setattr(PlanExecution, "_delete_revived_changelogs", expire)


def _never_again(run: Any, given: Any) -> Any:
    return set(), _PICTURE(run._directory)


def _all_at_once(run: Any, hint: EarliestHint, paths: Any) -> None:
    run._store.delete_all([*paths[1:], *paths[:1]])


def _no_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EarliestHint, "move", lambda hint, _: setattr(hint, "is_moved", True))
    for name in ("move_back", "check", "advance"):
        monkeypatch.setattr(EarliestHint, name, lambda *_: None)


def _none_stays(snapshots: Any, rule: Any, *rest: Any) -> Any:
    return _SNAPSHOTS(snapshots, replace(rule, least=0, most=0, millis=0), *rest)


def _young_too(self: Any, store: Any, paths: Any, before: Any) -> None:
    _OLD(self, store, paths, datetime(9999, 1, 1, tzinfo=timezone.utc))


def _without_extra(entries: Any) -> Any:
    return entries["file_name"].to_pylist()


def _all_manifests(candidates: Candidates, lists: Sequence[str]) -> Any:
    """As if nobody else had deleted a part of what goes."""
    try:
        return references._distinct(candidates._manifests.manifest_lists([*dict.fromkeys(lists)]))
    except FileNotFoundError as error:
        raise references.missing_file_error("t", error, "a snapshot that goes", None) from error


def _snapshots_only(self: Any, lists: Any) -> None:
    """Only the state of the first snapshot that stays is looked at."""
    self._add_lists([name for name in lists if name is not None])


BUSY = Weather(others=0.2, kills=0.002, nested=0.01)
IDLE_CONSUMERS = Weather(others=0.2, rounds=4, kinds=(EXPIRES_CONSUMERS,))
PAIRS = Weather(nested=0.03, kills=0.01)


def _mark_only(run: Any, seen: Any) -> None:
    """A consumer that saves just after it was marked goes too."""
    for name, found in seen.items():
        if found is not None:
            with suppress(ChangedFileError):
                run._consumers.replace(name, replace(found[0], owner=EXPIRED), found[1])


@contextmanager
def _no_pin(*_: Any, **__: Any) -> Iterator[Callable[[], None]]:
    yield lambda: None


@contextmanager
def _unchecked_pin(*args: Any, **options: Any) -> Iterator[Callable[[], None]]:
    with _PINNED(*args, **options):
        yield lambda: None


def _without_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    write = Store.write_atomic

    def write_atomic(store: Store, path: str, data: bytes) -> None:
        if "/consumer/maintenance-" not in path:
            write(store, path, data)

    monkeypatch.setattr(Store, "write_atomic", write_atomic)


_TO_JSON = Consumer.to_json
MUTANTS = (
    Mutant("tags keep nothing", ("M1", "M9"), _without("tagged")),
    Mutant("snapshots keep nothing", ("M1", "M7", "M9"), _without("snapshots")),
    Mutant("long-lived changelogs keep nothing", ("M2", "M9"), _without("changelogs")),
    Mutant("other branches keep nothing", ("M1",), _set_all((maintain, needed_files), "picture_of", _main_only), BUSY),
    Mutant("files go before snapshots", ("M1", "M2"), _files_first),
    Mutant(
        "what has appeared meanwhile is not looked for",
        ("M1", "M2", "M6"),
        _set(NeededFiles, "newly_needed", _never_again),
        BUSY,
    ),
    Mutant(
        "consumers and tags are not looked at again",
        ("M1", "M4", "M5"),
        _set(PlanExecution, "_check_unchanged", lambda *_: None),
        BUSY,
    ),
    Mutant("snapshots go in any order", ("M3",), _set(PlanExecution, "_expire_visible", _all_at_once)),
    Mutant("the hint stays where it is", ("M3",), _no_hint),
    Mutant("the latest snapshot expires", ("M4", "M6", "M7"), _set(expiry_planner, "expired_snapshots", _none_stays)),
    Mutant("consumers keep nothing", ("M5",), _set(ExpiryPlanner, "_protections", lambda *_: [])),
    Mutant(
        "the snapshot before a position may go",
        ("M5",),
        _set(Protection, "first_kept", property(lambda p: p.next_snapshot)),
    ),
    Mutant("consumers of writers expire", ("M5",), _set(expiry_planner, "record_name", lambda _: "")),
    Mutant("young orphans go", ("M1", "M2", "M7"), _set(OldFiles, "__init__", _young_too)),
    Mutant("files next to data files are forgotten", ("M1",), _set(references, "_names", _without_extra)),
    Mutant("what later snapshots add is forgotten", ("M1", "M2"), _set(References, "_add_added", _snapshots_only)),
    Mutant("indexes and statistics are forgotten", ("M1",), _set(References, "_add_indexes", lambda *_: None)),
    Mutant(
        "what has expired meanwhile is damage",
        ("M7",),
        _set(NeededFiles, "_expired", lambda *_: None),
        PAIRS,
    ),
    Mutant(
        "what Java has expired by half is damage",
        ("M7",),
        _set(Candidates, "_manifests_of", _all_manifests),
        BESIDE_JAVA,
    ),
    Mutant(
        "a mark is not read back",
        ("M5",),
        _set(PlanExecution, "_mark_expired", _mark_only),
        history=histories.save_after_the_mark,
        options=histories.EXPIRING,
    ),
    Mutant(
        "a reader does not look before it saves", ("M5",), _set(Progress, "_check", lambda *_: None), IDLE_CONSUMERS
    ),
    Mutant("a run writes no plan", ("M1", "M3", "M4"), _without_plan, history=histories.rollback_in_a_run),
    Mutant(
        "a plan goes whose files only it names",
        ("M4",),
        _set(maintain, "plans_of_runs", lambda _: []),
        history=rollback_behind_a_second_run,
    ),
    Mutant(
        "a plan goes that another run has carried out",
        ("M4",),
        _set(maintain, "plans_of_runs", lambda _: []),
        history=rollback_behind_the_same_run,
    ),
    Mutant(
        "a rollback pins nothing",
        ("M1", "M3", "M4"),
        _set(table_rollback, "pinned", _no_pin),
        history=histories.run_in_a_rollback,
    ),
    Mutant(
        "a fast-forward pins nothing",
        ("M4",),
        _set(branch_fast_forward, "pinned", _no_pin),
        history=replacement_in_a_run,
    ),
    Mutant(
        "a rollback goes on after another one has ended",
        ("M4",),
        _set(table_rollback, "pinned", _unchecked_pin),
        history=two_rollbacks,
    ),
    Mutant(
        "a replacement pins nothing",
        ("M4", "M5"),
        _set(branch_fast_forward, "pinned", _no_pin),
        history=replacement_never_finished,
    ),
    Mutant(
        "a rollback does not look for files",
        ("M1",),
        _set(table_rollback, "check_complete", lambda *_: None),
        history=histories.rollback_to_damage,
    ),
    Mutant(
        "a tag that comes too late stays",
        ("M1",),
        _set(TagWriter, "_check", lambda *_: None),
        history=histories.tag_too_late,
    ),
    Mutant(
        "positions are not protected",
        ("M5",),
        _set(MaintenancePolicy, "protected_ids", ()),
        history=position_without_a_file,
    ),
    Mutant(
        "expired consumers are not marked",
        ("M5",),
        _set(PlanExecution, "_mark_expired", lambda *_: None),
        history=histories.late_save,
        options=histories.EXPIRING,
    ),
    Mutant(
        "a save without progress changes no file",
        ("M5",),
        _set(Consumer, "to_json", lambda consumer, _=None: _TO_JSON(consumer)),
        history=histories.save_without_progress,
        options=histories.EXPIRING,
    ),
    Mutant(
        "changelogs are not kept",
        ("M2",),
        _set(plan_execution, "keep_changelogs", lambda *_: None),
        history=histories.kept_changelogs,
        options=histories.COUNTED,
    ),
    Mutant(
        "a changelog without files is kept",
        ("M2",),
        _set(kept_changelogs, "has_changelog_list", lambda *_: True),
        history=histories.slow_changelogs,
        options=histories.COUNTED,
    ),
    Mutant(
        "a changelog that came back keeps what is gone",
        ("M7",),
        _set(roots, "_lost", lambda *_: ()),
        history=changelog_comes_back,
        options=histories.COUNTED,
    ),
    Mutant(
        "an old listing is believed",
        ("M1",),
        _set(SnapshotManager, "hinted_latest_id", lambda *_: None),
        history=cleaner_of_an_old_listing,
    ),
    Mutant(
        "the hint of another run is moved back",
        ("M3",),
        _set(PlanExecution, "_is_alone", lambda _: True),
        history=hints_of_two_runs,
    ),
    Mutant(
        "the hint is moved back past a gap",
        ("M3",),
        _set(PlanExecution, "_is_alone", lambda _: True),
        history=hint_of_a_killed_run,
    ),
    Mutant(
        "what a killed run has hidden is not known",
        ("M7",),
        _set(roots, "_visible_id", lambda *_: 0),
        history=hint_of_a_finished_plan,
    ),
    Mutant(
        "the hint is moved past a gap",
        ("M3",),
        _set(EarliestHint, "_is_believed", lambda *_: False),
        history=hint_of_a_finished_plan,
    ),
)
