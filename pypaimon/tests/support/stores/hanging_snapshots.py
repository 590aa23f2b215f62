"""A FileIO whose reads of snapshots hang from some moment on."""

from __future__ import annotations

import threading
from typing import Any

from support.stores.fault_file_io import Call, FaultFileIO


class Hanging(FaultFileIO):
    """Reads of snapshots hang once `hang` is called, until the test is over."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = threading.Event()
        self.saved = threading.Event()
        self.over = threading.Event()

    def hang(self) -> None:
        self.wherever(self._hang)

    def _hang(self, call: Call) -> Any:
        if call.name.startswith("snapshot-"):
            self.hangs.set()
            self.over.wait()
        answer = call.answer()
        if call.kind == "write":
            self.saved.set()
        return answer
