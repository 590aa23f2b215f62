"""A FileIO around the local one that counts what is read of each file; as an object store at `object://`."""

from __future__ import annotations

import io
from collections import Counter
from typing import Any

from pypaimon.filesystem.local_file_io import LocalFileIO

from support.stores.fault_file_io import local


class CountingFileIO(LocalFileIO):
    """Streams read the ranges that are asked for, and no more.

    Attributes:
        opened: How often each file was opened, by name.
        largest: The most bytes that were asked for at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.opened: Counter[str] = Counter()
        self.bytes_read: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()
        self.largest = 0

    def of(self, suffix: str) -> int:
        """The bytes that were read of files whose names end so."""
        return sum(count for name, count in self.bytes_read.items() if name.endswith(suffix))

    def new_input_stream(self, path: str) -> Any:
        self.opened[path.rsplit("/", 1)[-1]] += 1
        return _Counted(self, path, LocalFileIO.new_input_stream(self, local(path)))

    def get_file_size(self, path: str) -> int:
        return int(LocalFileIO.get_file_size(self, local(path)))

    def list_status(self, path: str) -> Any:
        return LocalFileIO.list_status(self, local(path))

    def exists(self, path: str) -> bool:
        return bool(LocalFileIO.exists(self, local(path)))


class _Counted(io.RawIOBase):
    def __init__(self, file_io: CountingFileIO, path: str, stream: Any) -> None:
        super().__init__()
        self._file_io = file_io
        self._name = path.rsplit("/", 1)[-1]
        self._stream = stream

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        return int(self._stream.tell())

    def read(self, size: int | None = -1) -> bytes:
        data: bytes = self._stream.read(size)
        self._file_io.bytes_read[self._name] += len(data)
        self._file_io.reads[self._name] += 1
        self._file_io.largest = max(self._file_io.largest, len(data))
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, target: Any) -> int:
        data = self.read(len(target))
        target[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()
