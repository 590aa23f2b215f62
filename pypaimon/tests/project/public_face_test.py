"""The public face stays: names, members and signatures change only where that is meant, and written down."""

from __future__ import annotations

import subprocess

import pytest

from support.docs.public_face import FILE, public_face, unannounced
from support.repository import ROOT

HOW_TO_UPDATE = "to accept this face: python pypaimon/tests/support/run.py support.docs.public_face"


@pytest.mark.torch
def test_names_and_signatures_are_those_that_are_written_down() -> None:
    assert public_face() == FILE.read_text(encoding="utf-8"), HOW_TO_UPDATE


@pytest.mark.torch
def test_what_has_gone_since_the_last_tag_is_in_the_changelog() -> None:
    changelog = ROOT.joinpath("CHANGELOG.md").read_text(encoding="utf-8")
    before = _git("show", f"{tag}:{FILE.relative_to(ROOT)}") if (tag := _last_tag()) else ""
    assert unannounced(before, public_face(), changelog) == []


@pytest.mark.parametrize(
    ("now", "heading", "found"),
    [
        ("a.B(object)\na.B.c(self, d: int)\na.e()\n", "Added", []),
        ("a.B(object)\na.B.c(self)\n", "Added", ["a.B.c"]),
        ("a.B(object)\n", "Fixed", ["a.B.c"]),
        ("a.B(object)\n", "Removed", []),
        ("a.B(object)\na.B.c(self)\n", "Changed", []),
    ],
)
def test_names_and_signatures_that_have_gone_are_found(now: str, heading: str, found: list[str]) -> None:
    before = "a.B(object)\na.B.c(self, d: int)\n"
    changelog = f"# Changelog\n\n## [Unreleased]\n\n### {heading}\n\n- `c`\n\n## 0.1.0\n\n### Removed\n\n- `c`\n"
    assert unannounced(before, now, changelog) == found


def _last_tag() -> str:
    """The newest tag before this commit; empty where there is none, or no history."""
    return _git("describe", "--tags", "--match=v*", "--abbrev=0", "HEAD^")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
