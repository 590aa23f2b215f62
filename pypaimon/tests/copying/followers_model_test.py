"""Over random histories of every kind of table each follower equals a batch read, or refuses the table."""

from __future__ import annotations

import gc
from contextlib import ExitStack
from pathlib import Path

import pytest

from pypaimon.streaming import UnsupportedTableError
from support.models.followed_tables import KINDS, REFUSED, FollowedTable
from support.models.followers import FOLLOWERS, Follower, takes
from support.samples import SOAK, seeded, some
from support.tables.live_tables import in_order

pytestmark = [pytest.mark.slow, pytest.mark.soak]

STEPS = 40 if SOAK else 4
ONE_IN = 2
"""Chance of a follower to catch up after a step, one in this number. All catch up after the last step."""


def followers_of(kind: str, source: FollowedTable, count: int) -> list[str]:
    """`count` followers, drawn for each kind of table; all of them in the long form."""
    return some(f"followers of {kind}", [name for name in FOLLOWERS if takes(name, source)], count)


@pytest.mark.parametrize("kind", KINDS)
def test_each_follower_equals_its_table(tmp_path: Path, kind: str) -> None:
    random = seeded(f"history of {kind}")
    source = FollowedTable(tmp_path / "source", KINDS[kind], random)
    steps: list[str] = []
    followers: dict[str, Follower] = {}
    with ExitStack() as stack:
        for name in followers_of(kind, source, 2):
            (directory := tmp_path / name).mkdir()
            followers[name] = FOLLOWERS[name](source, random, directory)
            stack.callback(followers[name].close)
        # What followers have imported is not looked at for garbage again and again.
        gc.collect()
        gc.freeze()
        for step in range(STEPS):
            steps.append(source.change())
            expected = in_order(source.rows())
            for name, follower in followers.items():
                if random.randrange(ONE_IN) and step < STEPS - 1:
                    continue
                steps.append(name)
                follower.follow()
                assert in_order(follower.rows()) == expected, steps


@pytest.mark.parametrize("kind", REFUSED)
def test_a_table_whose_changes_do_not_make_its_rows_is_refused(tmp_path: Path, kind: str) -> None:
    refused, word = REFUSED[kind]
    source = FollowedTable(tmp_path / "source", refused, seeded(kind))
    source.write()
    for name in followers_of(kind, source, 2):
        (directory := tmp_path / name).mkdir()
        with ExitStack() as stack, pytest.raises(UnsupportedTableError, match=word):
            follower = FOLLOWERS[name](source, seeded(name), directory)
            stack.callback(follower.close)
            follower.follow()
