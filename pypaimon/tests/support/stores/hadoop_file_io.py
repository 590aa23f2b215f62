"""Local files as those of HDFS through Arrow: a write is seen while it goes on, a rename replaces nothing."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pypaimon.filesystem.local_file_io import LocalFileIO

HADOOP = "hdfs://name-node"


class HadoopFileIO(LocalFileIO):
    """Files `hdfs://name-node<path>`."""

    def __init__(self) -> None:
        super().__init__()
        self.halfway: Callable[[], Any] = lambda: None
        self.dead = False
        self._left: int | None = None

    def dies_after(self, steps: int) -> None:
        """Die after so many steps; a write has two."""
        self._left = steps

    def new_input_stream(self, path: str) -> Any:
        self._step()
        return io.BytesIO(_local(path).read_bytes())

    def new_output_stream(self, path: str) -> Any:
        self._step()
        target = _local(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"")
        return _Writing(self, target)

    def exists(self, path: str) -> bool:
        self._step()
        return _local(path).exists()

    def list_status(self, path: str) -> Any:
        self._step()
        return super().list_status(str(_local(path)))

    def delete(self, path: str, recursive: bool = False) -> bool:
        self._step()
        return super().delete(str(_local(path)), recursive)

    def rename(self, src: str, dst: str) -> bool:
        self._step()
        try:
            os.link(_local(src), _local(dst))
        except (FileExistsError, FileNotFoundError):
            return False
        os.unlink(_local(src))
        return True

    def _step(self) -> None:
        if self._left is not None:
            self.dead = self.dead or self._left == 0
            self._left -= 1
        if self.dead:
            raise OSError("dead")


class _Writing(io.BytesIO):
    def __init__(self, file_io: HadoopFileIO, target: Path) -> None:
        super().__init__()
        self._io, self._target = file_io, target

    def __exit__(self, *exception: object) -> None:
        data = self.getvalue()
        super().close()
        self._target.write_bytes(data[: len(data) // 2])
        self._io.halfway()
        self._io._step()
        self._target.write_bytes(data)


def _local(path: str) -> Path:
    return Path(path.removeprefix(HADOOP))
