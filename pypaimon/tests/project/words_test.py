"""The words of sources and pages: constructions that readers stumble over stay out, each with what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.repository import ROOT

INSTEAD = {
    r"\banew\b": "again, or re-",
    r"\bbeside\b": "next to, with, in addition to",
    # A lag is behind: "3 snapshots behind", "how far it is behind", "falls behind"; so is the name of that state.
    r"(?<!far )(?<!falls )(?<!left )(?<!is )(?<!are )(?<!further )(?<!furthest )(?<!\d )(?<!\} )(?<!\")(?<!seconds )"
    r"(?<!ms )(?<!snapshots )\bbehind\b": "after",
    r"\b(lies?|lay|lying)\b(?! to)": "is, are",
    r"\b(go|goes|going|went|gone) on\b": "continues, resumes",
    r"(?<!\.)(?<!\")(?<!def )\b(tells?|told|telling)\b": "says, reports, returns, raises",
    r"\b[Ss]o (many|much)\b(?! (as|that))": "this many, a number of",
    r"\b[Ii]n (the|its|their) midst\b": "in the middle, during",
    r"(?<!here )\b(is|are|was|were|of|but) none\b(?! of)": "does not exist, is invalid, is not one of",
    r"\b[Nn]one (does|is|are|has|have|was|were|may|can)\b": "no ... does",
    r"(?<!here )\b(is|are|was|were) no (?!longer\b|more than\b|less\b|matter\b|other\b)[a-z]+": "is not a",
    r"\bcannot be[.;,]": "invalid",
    r"\bof which there\b": "say it in two sentences",
    r"\b(is|are|be|was|were) no more\b(?! than)": "no longer is",
    r"(^|[.,;:(]|\b(and|or|of|for|to|by|with|than|on|from|that|if|is)) ?\bwho\b": "the caller, a program that",
    r"\b[Ww]ho(so)?ever\b": "the caller, a program that",
    r"For (those|whoever|people) ": "what the page is about",
    r"^\s+\w+: (It|They|Them|Likewise|Those|So)\.$": "what the argument is, or nothing",
    r"\b(heirs?|duty|errands?|namesakes?|strangers?|incarnations?|mortal)\b": "the field's term",
    r"\bRaises? where\b": "raises if",
    r"\b(thereof|thereby|wherein|whereof|thus|lest|ere|withal|hitherto)\b": "so, by that",
}
RULES = {re.compile(pattern, re.MULTILINE): instead for pattern, instead in INSTEAD.items()}


def texts() -> Iterator[Path]:
    for pattern in ("pypaimon/s*/**/*.py", "benchmarks/**/*.py", "examples/*.py", "docs/*.md", "*.md"):
        yield from ROOT.glob(pattern)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The stream goes on behind it.", 2),
        ("It is 3 snapshots behind, however far behind that is.", 0),
        ("There are none; there is no table.", 0),
        ("'x' is no table", 1),
        ("For those who read", 1),
        ("    plan: It.", 1),
    ],
)
def test_the_list_finds_what_it_means(text: str, found: int) -> None:
    assert sum(len(rule.findall(text)) for rule in RULES) == found


def test_sources_and_pages_have_none_of_these_words() -> None:
    found = []
    for path in texts():
        text = path.read_text(encoding="utf-8")
        for rule, instead in RULES.items():
            for match in rule.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{path.relative_to(ROOT)}:{line}: {match[0].strip()!r}: {instead}")
    assert found == []
