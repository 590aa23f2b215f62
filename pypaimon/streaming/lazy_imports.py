"""Modules that are imported when they are first used: those of annotations, and those that others import in vain."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from types import MappingProxyType, ModuleType
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


def lazy_names(
    module: str, extras: Mapping[str, str] = MappingProxyType({})
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a module whose public names are those that its stub imports.

    The stub is the only list of these names: type checkers read it, and so does the first use of a name that is not
    there yet. `__all__` is one of them, so that `from module import *` works.

    Args:
        extras: The extra that brings a package, by its name, for the error where it is missing.
    """
    homes: dict[str, str] = {}

    def read_stub() -> dict[str, str]:
        if not homes:
            from pkgutil import get_data

            package = sys.modules[module].__package__ or ""
            stub = "__init__.pyi" if package == module else f"{module.rpartition('.')[2]}.pyi"
            text = (get_data(package, stub) or b"").decode()
            homes.update({name: home for home, name in re.findall(r"^from (\S+) import (\w+) as \2$", text, re.M)})
        return homes

    def get_attribute(name: str) -> Any:
        if name == "__all__":
            return sorted(read_stub())
        if (name.startswith("__") and name.endswith("__")) or name not in read_stub():
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        with naming_extra(name, extras):
            value = getattr(import_module(homes[name]), name)
        vars(sys.modules[module])[name] = value
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *read_stub()})

    return get_attribute, names


@contextmanager
def naming_extra(needed_by: str, extras: Mapping[str, str]) -> Iterator[None]:
    """Name the extra that brings a package, by its name, if an import within lacks it.

    Raises:
        ModuleNotFoundError: As the import does, with what to install.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in extras:
            raise
        text = f"{needed_by} needs the package {package}: pip install 'pypaimon-streaming[{extras[package]}]'"
        raise ModuleNotFoundError(text, name=error.name) from error


class _DeferredModule(ModuleType):
    """Stands in for a module until one of its attributes is used.

    Args:
        name: The module.
        annotations: Its classes that annotations name. They are `Any` to modules that are imported meanwhile.
    """

    def __init__(self, name: str, annotations: Collection[str]) -> None:
        super().__init__(name)
        self._annotations = annotations

    def __getattr__(self, name: str) -> Any:
        if name in self._annotations and sys.modules.get(self.__name__) is self:
            return Any
        # Another thread may have imported this object instead of the module.
        self.remove()
        return getattr(import_module(self.__name__), name)

    def remove(self) -> None:
        """Let the next import find the module."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


@contextmanager
def deferred_imports(*names: str, annotations: Collection[str] = ()) -> Iterator[None]:
    """Defer these modules, for modules that are imported within, to the first use of an attribute.

    Args:
        names: The modules. One that is imported already stays as it is.
        annotations: Their classes that annotations name.
    """
    deferred = [_DeferredModule(name, annotations) for name in names if name not in sys.modules]
    sys.modules.update({each.__name__: each for each in deferred})
    try:
        yield
    finally:
        for each in deferred:
            each.remove()


class _NoPandas(MetaPathFinder):
    """Makes pandas look as if it were not installed."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        """Find nothing, and hide pandas.

        Raises:
            ModuleNotFoundError: The module is pandas.
        """
        if name == "pandas":
            raise ModuleNotFoundError("Not looked for in this process.", name=name)


def use_pyarrow_without_pandas() -> None:
    """Keep pyarrow from importing pandas only to check for its objects, unless it is imported already.

    pyarrow looks once. Calls that create pandas objects, such as `to_pandas()`, still import it.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    none = _NoPandas()
    sys.meta_path.insert(0, none)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(none)
