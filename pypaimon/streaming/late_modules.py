"""Modules that annotations name and that are imported when somebody asks for what the annotations mean."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LateModule:
    """Stands for a module in annotations: `typing.get_type_hints` imports it, `import pypaimon.streaming` does not.

    Where the module is not installed, what it would hold is `Any`. Type checkers see the import beside it:

        if TYPE_CHECKING:
            import polars
        else:
            polars = LateModule("polars")
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
