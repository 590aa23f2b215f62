"""Temporary files of this machine: what cannot be written there is an error that says where, and what helps."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from pypaimon.streaming.errors import StoreError


@contextmanager
def written_temporarily(what: str, advice: str = "") -> Iterator[None]:
    """Tell a temporary file that cannot be written, as on a full disk.

    Args:
        what: What is written, as a sentence.
        advice: What helps beside space, and another directory.

    Raises:
        StoreError: An `OSError` came (retriable: others may give space back).
    """
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{what}, and a temporary file in {tempfile.gettempdir()} cannot be written: {error}. Free space there, or "
            f"have TMPDIR name another directory{advice}."
        ) from error
