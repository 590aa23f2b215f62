"""Modules that only annotations name: they are imported when somebody evaluates the annotations."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LazyModule:
    """Stands for a module in annotations: `typing.get_type_hints` imports it, `import pypaimon.streaming` does not.

    If the module is not installed, its attributes are `Any`. Type checkers see the real import:

        if TYPE_CHECKING:
            import polars
        else:
            polars = LazyModule("polars")
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        try:
            module = import_module(self._name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{self._name}.".startswith(f"{error.name}."):
                raise
            return Any
        return getattr(module, attribute)
