"""A store that dies before or after any of its requests, with PUTs that are atomic as those of object stores."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pypaimon.filesystem.local_file_io import LocalFileIO

SCHEME = "object://"


class DyingStore(LocalFileIO):
    """Objects `object://<path>` in local files.

    Attributes:
        steps_left: Steps until it dies, None for never; each request is two steps, before and after it took effect.
        dead: Every request fails.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps_left: int | None = None
        self.dead = False

    def dies_after(self, steps: int | None) -> None:
        """Die after so many steps from now; None: live on."""
        self.steps_left, self.dead = steps, False

    def new_input_stream(self, path: str) -> Any:
        return io.BytesIO(self._request(Path(_local(path)).read_bytes))

    def new_output_stream(self, path: str) -> Any:
        return _Put(lambda data: self._request(lambda: self._put(Path(_local(path)), data)))

    def list_status(self, path: str) -> Any:
        return self._request(lambda: LocalFileIO.list_status(self, _local(path)))

    def delete(self, path: str, recursive: bool = False) -> Any:
        return self._request(lambda: LocalFileIO.delete(self, _local(path), recursive))

    def _put(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def _request(self, request: Callable[[], Any]) -> Any:
        self._step()
        answer = request()
        self._step()
        return answer

    def _step(self) -> None:
        if self.steps_left is not None:
            self.dead = self.dead or self.steps_left == 0
            self.steps_left = max(self.steps_left - 1, 0)
        if self.dead:
            raise OSError("dead")


class _Put(io.BytesIO):
    def __init__(self, put: Callable[[bytes], None]) -> None:
        super().__init__()
        self._put = put

    def __exit__(self, *exception: object) -> None:
        data = self.getvalue()
        super().close()
        self._put(data)


def _local(path: str) -> str:
    return path.removeprefix(SCHEME)
