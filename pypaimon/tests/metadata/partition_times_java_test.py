"""The times that partitions say are those of live Java, by every pattern that is known here."""

from __future__ import annotations

import random

import pytest

from pypaimon.streaming.model.time_patterns import TimePattern
from support.java.live import LiveJava
from support.samples import examples, seeded

pytestmark = [pytest.mark.java, pytest.mark.slow]

PATTERNS = [
    None,
    *("yyyyMMdd", "yyyy-MM-dd", "yyyy-M-d", "yyMMdd", "uuuu/MM/dd", "yMMdd", "y-M-d", "yyyMMdd", "yyyyMMd", "yyyyMM"),
    *("yyyyMMddHH", "yyyyMMddHHmm", "yyyyMMddHHmmss", "yyyyMMddHHmmssSSS", "yyyy-MM-dd HH", "yyyy-MM-dd H:m:s"),
    *("yyyy-MM-dd'T'HH:mm:ss", "yyyy-MM-dd['T'HH[:mm[:ss[.SSS]]]]", "yyyy-MM-dd[ HH][:mm]", "yyyy-MM-dd ss"),
    *("[yyyy]MMdd", "yyyy[-MM]-dd", "yyyyMMdd mm:ss", "yyyy-MM-dd HH:mm.S", "yyyy-MM-dd HH.SS", "''yyyy''MMdd"),
    *("yyyy uuuu MM dd", "yyyy MM MM dd", "HH 'o''clock' yyyyMMdd", "uuuuMMdd", "uMMdd", "yyyy-MM-dd["),
    *("ddMMyyyy", "dd.MM.yy", "yyyyyMMdd"),
]  # fmt: skip
TEXTS = [
    "",
    " ",
    "x",
    "2024-02-29 24:00:00",
    "2024-2-9 8:3:0.5",
    "1234567890-1-1",
    "-0-1-1",
    "999999999-99-99",
    "-5-1-1",
]


def text_for(pattern: str | None, random: random.Random) -> str:
    """A text that the pattern may fit, or may fail to fit by little."""
    filled, letters = "", {"y": 2024, "u": 2024, "M": 12, "d": 31, "H": 24, "m": 60, "s": 60, "S": 999}
    given = (pattern or random.choice(["y-M-d", "y-M-d H:m:s", "y-M-d H:m:s.S"])).replace("'", "")
    place = 0
    while place < len(given):
        letter = given[place]
        end = place + 1
        while end < len(given) and given[end] == letter:
            end += 1
        if letter in letters and not given[place:].startswith(("o", "clock")):
            value = random.choice(
                [letters[letter], random.randrange(letters[letter] + 2), 0, 1, 28, -random.randrange(40)]
            )
            filled += str(value).zfill(end - place)
        elif letter not in "[]":
            filled += letter * (end - place)
        place = end
    for _ in range(random.choice([0, 0, 0, 1, 2])):
        cut = random.randrange(len(filled) + 1)
        filled = filled[:cut] + random.choice(["", "1", "-", "+", " ", ":"]) + filled[cut + random.randrange(2) :]
    return filled


def test_every_text_says_the_time_that_it_says_in_java(java: LiveJava) -> None:
    chosen = seeded("partition times")
    asked = [(pattern, text) for pattern in PATTERNS for text in TEXTS]
    for pattern in PATTERNS:
        asked += [(pattern, text_for(pattern, chosen)) for _ in range(examples(150))]
    answers = java.call("partition_times", asked=[[None, pattern, ["p"], [text]] for pattern, text in asked])["times"]
    ours = [TimePattern(pattern).nanos(text) for pattern, text in asked]
    theirs = [None if each is None else int(each) for each in answers]
    wrong = [(*pair, mine, java) for pair, mine, java in zip(asked, ours, theirs, strict=True) if mine != java]
    assert not wrong, wrong[:10]
    assert sum(each is not None for each in ours) > len(ours) // 20
