"""Each target goes on exactly once after its process was killed, at whatever moment."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from support.crash.killed_target import check_killed
from support.samples import SOAK, some
from support.tables.target_places import LOCAL_PLACES, Keys, Place, PostgresPlace

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.xdist_group("postgres")]

KEYED, APPENDED = ("id",), ()
KINDS = (*LOCAL_PLACES, "Postgres")
CASES = [(name, keys) for name in KINDS for keys in (KEYED, APPENDED) if (name, keys) != ("Parquet", KEYED)]
KILLS = 200 if SOAK else 2


@pytest.mark.parametrize(("name", "keys"), some("killed targets", CASES, 1))
def test_a_program_killed_at_any_moment_continues_exactly_once(
    tmp_path: Path, request: pytest.FixtureRequest, name: str, keys: Keys
) -> None:
    place: Place
    if name == "Postgres":
        place = PostgresPlace(request.getfixturevalue("address"), f"killed {len(keys)}", alone=True)
    else:
        place = LOCAL_PLACES[name](tmp_path)
    check_killed(tmp_path / "w", keys, partial(place.opened, keys), place.held, KILLS)
