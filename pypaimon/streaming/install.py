"""Making `new_stream_read_builder()` of pypaimon's table classes return our builder.

Classes that pypaimon has imported are changed at once, the others when it imports them: a process that needs none of
them, as Spark's that only plans tasks, does not pay for them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pypaimon.streaming.builder.builder import StreamReadBuilder

_TABLE_CLASSES = {
    "pypaimon.table.file_store_table": "FileStoreTable",
    "pypaimon.table.format.format_table": "FormatTable",
    "pypaimon.table.iceberg.iceberg_table": "IcebergTable",
    "pypaimon.table.object.object_table": "ObjectTable",
    "pypaimon.table.system.system_table": "SystemTable",
    "pypaimon.table.table": "Table",
}
"""The table classes by their modules. Each overrides the method, so that changing the base class would do nothing."""


def install() -> None:
    """Replace `new_stream_read_builder` of every table class. Idempotent; `import pypaimon.streaming` calls it."""
    if not any(isinstance(finder, _TableFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _TableFinder())
    for name in _TABLE_CLASSES:
        if name in sys.modules:
            # Waits for a thread that is importing it.
            _replace_in(import_module(name))


def _replace_in(module: ModuleType) -> None:
    getattr(module, _TABLE_CLASSES[module.__name__]).new_stream_read_builder = _new_stream_read_builder


def _new_stream_read_builder(table: Any) -> StreamReadBuilder:
    """A builder of streams of this table; see `pypaimon.streaming.StreamReadBuilder`."""
    from pypaimon.streaming.builder.builder import StreamReadBuilder

    return StreamReadBuilder(table)


class _TableFinder(MetaPathFinder):
    """Finds the modules of table classes as all other finders do, and has the method replaced behind their import."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module with a table class, None for any other."""
        if name not in _TABLE_CLASSES:
            return None
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((found for found in others if found is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _TableLoader(spec.loader)
        return spec


class _TableLoader(Loader):
    """Hands a module over to its own loader, and replaces the method of the class that comes of it."""

    def __init__(self, own: Loader) -> None:
        self._own = own

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the module's own loader."""
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """As the module's own loader, which the module has from now on."""
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._own
        self._own.exec_module(module)
        _replace_in(module)
