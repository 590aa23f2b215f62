"""Which table options this package uses, and which keys are misspellings of them.

Tables hold options of older releases, engines, catalogs and users that this package does not know. So an unknown key is
accepted, with two exceptions: a key with the prefix of a stream option, and a key that is spelled almost like one that
is used here (`Spellings`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import cache, lru_cache

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.arguments import did_you_mean, nearest
from pypaimon.streaming.options.option_key import Use
from pypaimon.streaming.paimon.internals import ConfigOption, CoreOptions, TableSchema

_SHORTEST = 8
"""Shorter keys are not compared, because users have options of their own such as `paths` or `branches`."""
_LONG_WORD = 8
_SEPARATOR = re.compile(r"[.\-_]+")
_NO_LETTER = re.compile(r"[^a-z0-9]")
_MOST_REMEMBERED = 4096
_PREFIXES = ("scan.", "incremental-", "streaming-read", "streaming.read.")

KNOWN_STREAM_KEYS = frozenset(key for key in option_keys.known_names() if key.startswith(_PREFIXES))
"""All keys that Paimon knows or knew under the four prefixes."""


def accepted_names() -> frozenset[str]:
    """The names of table options that a user may give: those of the registry, and those that only pypaimon uses."""
    of_pypaimon = {each.key() for each in vars(CoreOptions).values() if isinstance(each, ConfigOption)}
    return option_keys.known_names() | of_pypaimon


class Spellings:
    """Finds the known key that a misspelled one means.

    A key is misspelled if its letters are those of a known key with another case or other separators. It is also
    misspelled if it has as many words as a known key and each word is equal or one typo away from it (two in a word of
    eight letters or more): a letter added, missing, replaced, or exchanged with the next one. A word of any known key
    is not a typo.

    Args:
        known: All known keys; those of fields without the name of the field, as in `fields.aggregate-function`.
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
        """The known key that a key means; None if the key is known, or not like any known key."""
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
    """The number of letters to add, remove, replace, or exchange with the next one."""
    before, row = list[int](), list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        last, before, row = before, row, [i]
        for j, wanted in enumerate(other, 1):
            best = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                best = min(best, last[j - 2] + 1)
            row.append(best)
    return row[-1]


# Other systems have options such as `timezone`.
_NOT_COMPARED = {option_keys.TIME_ZONE.name}


@cache
def _spellings(*use: Use) -> Spellings:
    """Those of the keys for a use; without one, of all keys."""
    return Spellings(option_keys.known_names(*use) - _NOT_COMPARED)


def refuse_unknown_keys(schema: TableSchema) -> None:
    """Refuse a misspelled option of a table that is read, because a setting must not be ignored.

    Raises:
        StreamConfigError: Names the key and the nearest known one.
        UnsupportedTableError: The option is internal to Java's compaction jobs.
    """
    for key in schema.options:
        if key.startswith(_PREFIXES) and key not in KNOWN_STREAM_KEYS:
            raise _unknown(key, nearest(key, KNOWN_STREAM_KEYS))
    _refuse_misspelled(schema.options, Use.READ)
    mode = option_keys.STREAM_SCAN_MODE.of(schema.options)
    if mode is not None and mode.lower() != "none":
        raise UnsupportedTableError(
            f"Option '{option_keys.STREAM_SCAN_MODE}' = '{mode}' is internal to Java's compaction jobs; remove it."
        )


def refuse_misspelled_keys(keys: Iterable[str]) -> None:
    """Refuse a misspelled option of a table that is written or compacted.

    Raises:
        StreamConfigError: Names the key and the known one.
    """
    _refuse_misspelled(keys)


def _refuse_misspelled(keys: Iterable[str], *use: Use) -> None:
    for key in keys:
        meant = _spellings(*use).meant_by(key)
        if meant is not None:
            raise _unknown(key, meant)


def _unknown(key: str, meant: str | None) -> StreamConfigError:
    return StreamConfigError(f"Unknown option '{key}'.{did_you_mean(meant)} Remove it or correct its name.")
