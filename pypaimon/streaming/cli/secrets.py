"""Output without secrets: everything that the program prints, except rows of tables."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import click

from pypaimon.streaming.redaction import HIDDEN, SECRET_KEY, without_secrets

_LEAST_LENGTH = 8
"""Shorter values are hidden only in options and URIs, since they could be parts of ordinary words."""
_PUBLIC = re.compile(r".*access[-_.]?key(?:[-_.]?id)?", re.IGNORECASE)
"""Names of options that hold the id of a key, which is public."""
_known: set[str] = set()


def keep_secret(options: Mapping[str, str]) -> None:
    """Hide the secrets of a catalog's options from now on, even if a client or a database repeats them."""
    for key, value in options.items():
        is_secret = SECRET_KEY.fullmatch(key) and ("secret" in key.lower() or not _PUBLIC.fullmatch(key))
        found = [value] if is_secret else _passwords(value)
        _known.update(each for each in found if len(each) >= _LEAST_LENGTH)


def shown(text: str) -> str:
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return without_secrets(text)


def shown_value(value: Any, key: object = "") -> Any:
    """A value of a record without secrets: in its texts, at any depth, and under keys that name secrets."""
    if isinstance(value, str):
        return HIDDEN if SECRET_KEY.fullmatch(str(key)) else shown(value)
    if isinstance(value, Mapping):
        return {name: shown_value(each, name) for name, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        return [shown_value(each) for each in value]
    return value


def say(text: str) -> None:
    """Print a message on stderr, without secrets."""
    click.echo(shown(f"paimon-stream: {text}"), err=True)


class ShownLines(logging.Formatter):
    """Log lines and stack traces without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        return shown(super().format(record))


def _passwords(text: str) -> list[str]:
    try:
        password = urlsplit(text).password
    except ValueError:
        return []
    return [] if password is None else [password, unquote(password)]


def is_unicode() -> bool:
    return (sys.stdout.encoding or "ascii").lower().replace("-", "").startswith("utf")
