"""A writer that is killed at any moment, again and again: each of its commits is there once, and no other file is left.

The long form kills a thousand times, and pypaimon's stream writer too, as the measure.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.crash import killed_writer
from support.repository import program
from support.samples import SOAK, sample_seed

pytestmark = [pytest.mark.slow, pytest.mark.soak]

KILLS = 500 if SOAK else 2
KINDS = ["append", "keyed"]
NAMED = {"data", "manifest", "half-written"}
"""Orphans that `docs/writing.md` names."""


def killed(directory: Path, kind: str, who: str) -> dict[str, Any]:
    command = program("support.crash.killed_writer", str(directory), kind, who, str(KILLS), str(sample_seed()))
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    print(f"{who}, {kind}, {KILLS} deaths: {found}")
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_each_commit_is_there_once_and_only_named_orphans(tmp_path: Path, kind: str) -> None:
    found = killed(tmp_path, kind, "ours")
    commits, orphans = found.pop("commits"), found.pop("orphans")
    assert commits > killed_writer.UNDISTURBED * killed_writer.LIVES_TAKE
    assert not any(found.values()), found
    assert set(orphans) <= NAMED


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_the_measure(tmp_path: Path, kind: str) -> None:
    """No promise of ours."""
    assert killed(tmp_path, kind, "pypaimon")["commits"]
