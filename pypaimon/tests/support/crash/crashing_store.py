"""A store that dies before or after any of its requests."""

from __future__ import annotations

from typing import Any

from support.stores.fault_file_io import SCHEME, Call, FaultFileIO

__all__ = ["SCHEME", "DyingStore"]


class DyingStore(FaultFileIO):
    """Objects `object://<path>` in local files.

    Attributes:
        steps_left: Steps until it dies, None for never; each request is two steps, before and after it took effect.
        dead: Every request fails.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps_left: int | None = None
        self.dead = False
        self.wherever(self._in_two_steps)

    def dies_after(self, steps: int | None) -> None:
        """Die after so many steps from now; None: live on."""
        self.steps_left, self.dead = steps, False

    def _in_two_steps(self, call: Call) -> Any:
        self._step()
        answer = call.answer()
        self._step()
        return answer

    def _step(self) -> None:
        if self.steps_left is not None:
            self.dead = self.dead or self.steps_left == 0
            self.steps_left = max(self.steps_left - 1, 0)
        if self.dead:
            raise OSError("dead")
