"""What users of the library do to a table while it is maintained, by the library's own functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pypaimon.streaming.maintenance import (
    create_branch,
    create_tag,
    delete_branch,
    delete_tag,
    fast_forward,
    rename_tag,
    replace_tag,
    rollback,
)
from support.maintenance.actors import Actors
from support.maintenance.simulated_table import ROOT


@dataclass
class Operation:
    """One call.

    Attributes:
        name: What it is.
        call: Makes it, given a handle of the table.
        branch: The branch that it creates or deletes; a process that dies leaves a part of it.
        rolls_back: Whether it deletes the latest snapshots.
        rolled_back: How many rollbacks had ended when it began. What it commits may follow a snapshot that is gone.
        written: Snapshots, tags and changelogs that it has written. They count once the call has ended.
    """

    name: str
    call: Callable[[Any], object]
    branch: str | None = None
    rolls_back: bool = False
    rolled_back: int = 0
    written: list[str] = field(default_factory=list)


def drawn_operation(actors: Actors) -> Operation | None:
    """A call that is possible now; None if what was drawn is not."""
    rng, table = actors.rng, actors.table
    ids = actors.laws.visible_ids(f"{ROOT}/snapshot")
    tags = [
        name.removeprefix("tag-")
        for name in actors.objects.names(f"{ROOT}/tag")
        if f"{ROOT}/tag/{name}" not in actors.laws.pending
    ]
    what = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    number, tag = rng.choice(ids or [0]), rng.choice(tags or [""])
    branch = rng.choice(actors.branches or [""])
    if not ids or (what in _OF_TAGS and not tags) or (what in _OF_BRANCHES and not branch):
        return None
    if what == "roll back":
        return Operation(what, lambda handle: rollback(handle, snapshot_id=number), rolls_back=True)
    if what == "roll back to a tag":
        return Operation(what, lambda handle: rollback(handle, tag=tag), rolls_back=True)
    if what == "roll back as latest":
        given: dict[str, Any] = {"tag": tag} if tags and rng.random() < 0.5 else {"snapshot_id": number}
        return Operation(what, lambda handle: rollback(handle, as_latest=True, **given))
    if what == "fast-forward":
        return Operation(what, lambda handle: fast_forward(handle, branch, discard_own_commits=True), rolls_back=True)
    if what == "create a tag":
        name, retention = table.name("t"), rng.choice([None, timedelta(days=1)])
        return Operation(what, lambda handle: create_tag(handle, name, snapshot=number, retention=retention))
    if what == "replace a tag":
        return Operation(what, lambda handle: replace_tag(handle, tag, snapshot=number))
    if what == "rename a tag":
        name = table.name("t")
        return Operation(what, lambda handle: rename_tag(handle, tag, name))
    if what == "delete a tag":
        return Operation(what, lambda handle: delete_tag(handle, tag))
    if what == "create a branch":
        name = table.name("b")
        return Operation(what, lambda handle: create_branch(handle, name, tag=tag), name)
    return Operation(what, lambda handle: delete_branch(handle, branch), branch)


_WEIGHTS = {
    "roll back": 2.0, "roll back to a tag": 2.0, "roll back as latest": 3.0, "fast-forward": 2.0, "create a tag": 2.0,
    "replace a tag": 1.0, "rename a tag": 1.0, "delete a tag": 3.0, "create a branch": 2.0, "delete a branch": 1.0,
}  # fmt: skip
_OF_TAGS = ("roll back to a tag", "replace a tag", "rename a tag", "delete a tag", "create a branch")
_OF_BRANCHES = ("fast-forward", "delete a branch")
