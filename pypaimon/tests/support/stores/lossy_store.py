"""Stores that lose the answer to the publishing of a snapshot: it is there, and the caller is told that it is not."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from pypaimon.filesystem.local_file_io import LocalFileIO

Answer = Literal["error", "no"]
SCHEME = "object://"


class LossyStore(LocalFileIO):  # type: ignore[misc]
    """Objects `object://<path>` in local files; a store that does not arbitrate between writers.

    Attributes:
        answer: What renaming a file to a snapshot comes to: an error, or the word that it was not done (as Arrow's S3
            file system has it, whatever went wrong).
        effective: Whether it is done all the same.
        blind: Snapshots cannot be read once an answer was lost.
    """

    def __init__(self, answer: Answer, *, effective: bool = True, blind: bool = False, left: int = 100) -> None:
        super().__init__()
        self.answer, self.effective, self.blind, self.left = answer, effective, blind, left
        self._has_lost = False

    def rename(self, src: str, dst: str) -> bool:
        if "/snapshot/snapshot-" not in dst or not self.left:
            return bool(super().rename(src, dst))
        self.left, self._has_lost = self.left - 1, True
        if self.effective and not self.exists(dst):
            super().rename(src, dst)
        if self.answer == "no":
            return False
        raise OSError(errno.ETIMEDOUT, "the answer was lost")

    def new_input_stream(self, path: str) -> Any:
        if self.blind and self._has_lost and "/snapshot/" in path:
            raise PermissionError(errno.EACCES, "nobody may look", path)
        return super().new_input_stream(path)

    def _to_file(self, path: str) -> Path:
        return Path(str(super()._to_file(path.removeprefix(SCHEME))))


@contextmanager
def lossy_links(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As a network file system may do it: each link is made, and told as a failure."""
    link = os.link

    def lossy(*arguments: Any, **settings: Any) -> None:
        link(*arguments, **settings)
        raise OSError(errno.EIO, "the answer was lost")

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", lossy)
        yield
