"""`Spellings`: which known key of an option an unknown one is a misspelling of."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection
from functools import lru_cache

_SHORTEST = 8
"""Shorter keys are not compared: users have options of their own that are called `paths` or `branches`."""
_LONG_WORD = 8
_SEPARATOR = re.compile(r"[.\-_]+")
_NO_LETTER = re.compile(r"[^a-z0-9]")
_MOST_REMEMBERED = 4096


class Spellings:
    """The known keys that an unknown one may be meant to be.

    A key is misspelled if its letters are those of a known key, whatever their case and the separators between them. It
    is also misspelled if it has as many words as a known key and each is the same word or one typo away from it (two in
    a word of eight letters or more): a letter added, missing, replaced, or exchanged with the next one. A word that any
    known key has is not a typo.

    Args:
        known: All known keys. Those of fields are without the name of the field, `fields.aggregate-function`.
    """

    def __init__(self, known: Collection[str]) -> None:
        self._known = frozenset(known)
        self._words = frozenset(word for key in known for word in _words(key))
        self._by_letters = {_letters(key): key for key in known if len(_letters(key)) >= _SHORTEST}
        self._by_count: defaultdict[int, list[tuple[list[str], str]]] = defaultdict(list)
        for key in sorted(self._by_letters.values()):
            self._by_count[len(_words(key))].append((_words(key), key))
        self._meant = lru_cache(_MOST_REMEMBERED)(self._found)

    def meant_by(self, key: str) -> str | None:
        """The known key that a misspelled one means; None: the key is known, or not like any known key."""
        field, plain = _without_field(key)
        meant = None if plain in self._known else self._meant(plain)
        return meant if meant is None or field is None else f"fields.{field}.{meant.removeprefix('fields.')}"

    def _found(self, key: str) -> str | None:
        same_letters = self._by_letters.get(_letters(key))
        if same_letters is not None:
            return same_letters
        words = _words(key)
        for known, meant in self._by_count[len(words)]:
            if all(map(self._may_mean, words, known)):
                return meant
        return None

    def _may_mean(self, word: str, known: str) -> bool:
        if word == known:
            return True
        most = 2 if len(known) >= _LONG_WORD else 1
        return word not in self._words and abs(len(word) - len(known)) <= most and _distance(word, known) <= most


def _without_field(key: str) -> tuple[str | None, str]:
    """The field of `fields.<field>.<option>`, or None, and the key without it."""
    head, _, rest = key.partition(".")
    field, _, option = rest.rpartition(".")
    return (field, f"fields.{option}") if head == "fields" and field else (None, key)


def _words(key: str) -> list[str]:
    return _SEPARATOR.split(key.lower())


def _letters(key: str) -> str:
    return _NO_LETTER.sub("", key.lower())


def _distance(one: str, other: str) -> int:
    """How many letters must be added, removed, replaced, or exchanged with the next one."""
    before, row = list[int](), list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        last, before, row = before, row, [i]
        for j, wanted in enumerate(other, 1):
            best = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                best = min(best, last[j - 2] + 1)
            row.append(best)
    return row[-1]
