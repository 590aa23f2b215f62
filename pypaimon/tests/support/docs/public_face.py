"""The public face as text: every exported name, its members and their signatures, a line each.

As a program it writes `public_face.txt` anew: after a change of the face that is meant, look at its difference.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

from support.repository import TESTS

FILE = TESTS / "project" / "public_face.txt"
PACKAGES = (
    "pypaimon.streaming",
    *(
        f"pypaimon.streaming.{module}"
        for module in (
            "compaction databases doctor errors feeds groups live maintenance orchestrators stream_types targets "
            "telemetry testing writing"
        ).split()
    ),
    "pypaimon.spark",
)
"""The public modules: names of others may change with any release."""


def public_face() -> str:
    """All packages' names in order of the alphabet."""
    text = "".join(f"{line}\n" for package in PACKAGES for line in _package(package))
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def unannounced(before: str, now: str, changelog: str) -> list[str]:
    """Names that have gone, or whose signatures are others, without a word under `Changed` or `Removed`.

    Args:
        before: The public face of the release before.
    """
    newest = changelog.split("\n## ")[1]
    told = "".join(re.findall(r"^### (?:Changed|Removed)\n(.*?)(?=^### |\Z)", newest, re.MULTILINE | re.DOTALL))
    gone = {line.partition("(")[0].split()[0] for line in set(before.splitlines()) - set(now.splitlines())}
    return sorted(name for name in gone if not re.search(rf"\b{name.rpartition('.')[2]}\b", told))


def public_names(package: str) -> Iterator[tuple[str, Any]]:
    """The public names of a package, and what they stand for."""
    module = importlib.import_module(package)
    yield from ((name, getattr(module, name)) for name in sorted(module.__all__))


def _package(package: str) -> Iterator[str]:
    for name, value in public_names(package):
        if not (package.endswith(".errors") and hasattr(importlib.import_module("pypaimon.streaming"), name)):
            yield from _name(f"{package}.{name}", value)


def _name(path: str, value: Any) -> Iterator[str]:
    if not inspect.isclass(value):
        yield f"{path}{inspect.signature(value)}"
        return
    yield f"{path}({', '.join(_bases(value))})"
    if issubclass(value, enum.Enum):
        yield from (f"{path}.{member.name} = {member.value!r}" for member in value)
        return
    for name in sorted({name for each in value.__mro__ if _is_ours(each) for name in vars(each)}):
        if not name.startswith("_") or (name == "__init__" and is_made_by_users(value)):
            yield f"{path}.{name}{_member(inspect.getattr_static(value, name))}"


def is_made_by_users(kind: type) -> bool:
    """Whether its constructor is public: the description of the class names its arguments."""
    return "Args:" in (kind.__doc__ or "")


def _bases(kind: type) -> list[str]:
    """Public bases: what a user may catch a value as, or hand it over as."""
    return [each.__name__ for each in kind.__mro__[1:] if each is not object and not each.__name__.startswith("_")]


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith(PACKAGES)


def _member(member: Any) -> str:
    if isinstance(member, property):
        getter = inspect.signature(member.fget) if member.fget is not None else ""
        return f" property{getter}{'' if member.fset is None else ', settable'}"
    if isinstance(member, (staticmethod, classmethod)):
        return f" {type(member).__name__}{inspect.signature(member.__func__)}"
    return str(inspect.signature(member)) if inspect.isfunction(member) else " attribute"


if __name__ == "__main__":
    FILE.write_text(public_face(), encoding="utf-8")
