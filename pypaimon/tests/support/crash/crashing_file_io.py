"""A local FileIO whose process dies at any of its requests, as by kill -9: that one and all later ones do nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pypaimon.filesystem.local_file_io import LocalFileIO


class Killed(BaseException):
    """The process is dead. No handler of errors sees it, nothing is tidied up."""


class MortalFileIO(LocalFileIO):  # type: ignore[misc]
    """Files on disk, until death.

    Attributes:
        steps_left: Requests until death; None: for ever.
        interruption: What happens meanwhile, before the request of that number.
    """

    def __init__(self, steps_left: int | None = None) -> None:
        super().__init__()
        self.steps_left = steps_left
        self.steps = 0
        self.interruption: tuple[int, Callable[[], None]] | None = None

    def _step(self) -> None:
        self.steps += 1
        if self.interruption is not None and self.steps == self.interruption[0]:
            _, action = self.interruption
            self.interruption = None
            action()
        if self.steps_left is not None:
            if self.steps_left <= 0:
                raise Killed
            self.steps_left -= 1


def _mortal(name: str) -> Callable[..., Any]:
    def request(self: MortalFileIO, *args: Any, **kwargs: Any) -> Any:
        self._step()
        return getattr(LocalFileIO, name)(self, *args, **kwargs)

    return request


for _name in (
    "new_input_stream", "new_output_stream", "list_status", "exists", "delete", "rename", "mkdirs", "get_file_size",
    "try_to_write_atomic", "write_parquet", "write_avro", "write_orc",
):  # fmt: skip
    setattr(MortalFileIO, _name, _mortal(_name))
