"""Names of the files of a group: `state-<number>`, and `member-<id>-<number>` of registers."""

from __future__ import annotations

from collections.abc import Iterable

_STATE = "state-"
_MEMBER = "member-"
_DIGITS = 12


def state_name(number: int) -> str:
    """The file of a state."""
    return f"{_STATE}{number:0{_DIGITS}d}"


def register_name(member: str, number: int) -> str:
    """The file of a version of a register."""
    return f"{_MEMBER}{member}-{number:0{_DIGITS}d}"


def numbers_of(names: Iterable[str]) -> tuple[list[int], dict[str, list[int]]]:
    """The numbers of the states, and of the versions of each register by member, ascending. Other names are ignored."""
    states: list[int] = []
    versions: dict[str, list[int]] = {}
    for name in sorted(names):
        whole, _, digits = name.rpartition("-")
        if len(digits) != _DIGITS or not (digits.isascii() and digits.isdigit()):
            continue
        if f"{whole}-" == _STATE:
            states.append(int(digits))
        elif whole.startswith(_MEMBER):
            versions.setdefault(whole[len(_MEMBER) :], []).append(int(digits))
    return states, versions
