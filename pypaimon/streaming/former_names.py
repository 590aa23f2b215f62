"""Names of earlier development versions that programs still use. They are found, but listed nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

_FUNCTIONS = {
    "compactor": "compaction.background.Compactor",
    "copy_stream_sync": "copying.copy_stream.copy_stream",
    "stream_database": "databases.builder.database_stream_builder",
    "TablePlace": "databases.position.TablePosition",
    "Unit": "model.position.ReadUnit",
}
_HOMES = (
    *("errors", "targets", "databases", "groups", "compaction", "maintenance", "writing", "feeds", "telemetry"),
    "stream_types",
)


def find_former(name: str) -> Any:
    """A name that the root package once exported.

    Raises:
        AttributeError: It never did.
    """
    if name in _FUNCTIONS:
        module, _, current = f"pypaimon.streaming.{_FUNCTIONS[name]}".rpartition(".")
        return getattr(import_module(module), current)
    if not name.startswith("_"):
        for home in _HOMES:
            module_of_home = import_module(f"pypaimon.streaming.{home}")
            if name in getattr(module_of_home, "__all__", ()) or name in vars(module_of_home):
                return getattr(module_of_home, name)
    raise AttributeError(f"module 'pypaimon.streaming' has no attribute {name!r}")


class FormerNames:
    """A class some of whose methods had other names."""

    _former_names: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            current = type(self)._former_names.get(name)
            if current is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return getattr(self, current)
