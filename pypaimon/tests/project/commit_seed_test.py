"""Samples by commit: repeatable, another one with another seed, fair to every name."""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from support import samples as commit_seed

NAMES = [f"table_{table}/bounded_{read}_restore_{n}" for table in range(5) for read in range(5) for n in range(8)]


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(commit_seed.VARIABLE, raising=False)
    monkeypatch.setattr(commit_seed, "commit_seed", commit_seed.commit_seed.__wrapped__)


def of_seed(monkeypatch: pytest.MonkeyPatch, seed: int, one_in: int) -> set[str]:
    monkeypatch.setenv(commit_seed.VARIABLE, str(seed))
    return {name for name in NAMES if commit_seed.is_drawn(name, one_in)}


def test_the_variable_comes_before_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(commit_seed.VARIABLE, "12")
    assert commit_seed.commit_seed() == 12
    assert "TEST_SEED=12" in commit_seed.how_to_repeat()


def test_the_seed_is_that_of_the_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(commit_seed, "__file__", str(tmp_path / "commit_seed.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit_seed.commit_seed() == commit_seed.WITHOUT_HISTORY

    def git(*arguments: str) -> str:
        settings = ("-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", *settings, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    seeds = []
    git("init", "--quiet")
    for message in "ab":
        git("commit", "--quiet", "--no-verify", "--allow-empty", "--message", message)
        assert git("rev-parse", "HEAD").startswith(f"{commit_seed.commit_seed():08x}")
        seeds.append(commit_seed.commit_seed())
    assert seeds[0] != seeds[1]


def test_a_sample_is_repeatable_and_another_one_with_another_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_seed(monkeypatch, 1, 4) == of_seed(monkeypatch, 1, 4) != of_seed(monkeypatch, 2, 4)


def test_every_name_is_drawn_by_some_commit_and_none_by_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pattern of the names falls in step with the sample."""
    drawn = Counter(name for seed in range(64) for name in of_seed(monkeypatch, seed, 4))
    assert set(drawn) == set(NAMES)
    assert max(drawn.values()) < 40


def test_numbers_differ_by_use_and_are_repeatable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(commit_seed.VARIABLE, "3")

    def numbers(name: str) -> list[int]:
        drawn: random.Random = commit_seed.seeded(name)
        return [drawn.randrange(10**9) for _ in range(3)]

    assert numbers("a") == numbers("a") != numbers("b")
    assert "TEST_SEED=3" in capsys.readouterr().out


def test_some_are_in_their_order_each_in_turn_and_all_in_the_long_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOAK", raising=False)
    drawn = set()
    for seed in range(40):
        monkeypatch.setenv(commit_seed.VARIABLE, str(seed))
        found = commit_seed.some("letters", "abcd", 2)
        assert found == sorted(set(found)) and len(found) == 2
        drawn.add("".join(found))
    assert len(drawn) == 6
    monkeypatch.setenv("SOAK", "1")
    assert commit_seed.some("letters", "abcd", 2) == list("abcd")
