"""Text without passwords, keys and tokens: for errors, logs and the command line."""

from __future__ import annotations

import re

HIDDEN = "***"
_SECRET_WORD = (
    r"[\w.-]*(?:secret|token|passw(?:or)?d|access[-_.]?key|account[-_.]?key|private[-_.]?key|credential|signature|"
    r"sas[-_.]key)[\w.-]*"
)
SECRET_KEY = re.compile(_SECRET_WORD, re.IGNORECASE)
"""A name of an option that holds a secret."""
# Each looks only so far that a long text takes time in proportion to its length.
_SECRETS = (
    # User and password of a URI. A port is not a password, and a path may hold an @.
    re.compile(r"(?<=://)[^\s/:@]{0,256}:(?!\d+(?:/|$))(?:[^\s/]{1,1024}|[^\s@]{1,1024})(?=@)"),
    # An option, a parameter of a URI, or a field of JSON.
    re.compile(rf"(?<=[\s?&;,(\[{{'\"])({_SECRET_WORD}['\"]?\s?=\s?['\"]?)[^\s'\",;&)\]}}]+", re.IGNORECASE),
    re.compile(rf"(?<=['\"])({_SECRET_WORD}['\"]?\s?:\s?['\"]?)[^\s'\",;&)\]}}]+", re.IGNORECASE),
    # A line of YAML. A sentence may hold "the token: ...", so the name must have more than one part.
    re.compile(rf"(?<=[\s,(\[{{])((?=[\w.-]*(?:[-_.]|[a-z][A-Z]))(?i:{_SECRET_WORD}):\s?['\"]?)[^\s'\",;&)\]}}]+"),
)


def without_secrets(text: str) -> str:
    """The text with `***` in place of passwords, keys and tokens in URIs, options and parameters."""
    found = f" {text}"
    for pattern in _SECRETS:
        found = pattern.sub(lambda match: (match[1] if match.re.groups else "") + HIDDEN, found)
    return found[1:]
