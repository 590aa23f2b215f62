"""`install`: replaces pypaimon's stream by ours: the method of its table classes, and the names of its stream classes.

Modules that were imported already are changed at once, the others when they are imported, so that a process without
need for them, such as Spark's driver that only plans tasks, does not import them.
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
    from pypaimon.streaming.paimon.handles import ReadableTable
    from pypaimon.streaming.read_builder import StreamReadBuilder

_TABLE_CLASSES = {
    "pypaimon.table.file_store_table": "FileStoreTable",
    "pypaimon.table.format.format_table": "FormatTable",
    "pypaimon.table.iceberg.iceberg_table": "IcebergTable",
    "pypaimon.table.object.object_table": "ObjectTable",
    "pypaimon.table.system.system_table": "SystemTable",
    "pypaimon.table.table": "Table",
}
"""The table classes by module. Each overrides the method, so changing only the base class would have no effect."""

_STREAM_CLASSES = {
    "pypaimon.read.scanner.changelog_follow_up_scanner": "ChangelogFollowUpScanner",
    "pypaimon.read.scanner.delta_follow_up_scanner": "DeltaFollowUpScanner",
    "pypaimon.read.scanner.follow_up_scanner": "FollowUpScanner",
    "pypaimon.read.scanner.incremental_diff_scanner": "IncrementalDiffScanner",
    "pypaimon.read.stream_read_builder": "StreamReadBuilder",
    "pypaimon.read.streaming_table_scan": "AsyncStreamingTableScan",
}
"""The classes of pypaimon's stream by module: programs that import these names get ours."""

_own_classes: dict[str, Any] = {}


def install() -> None:
    """Replace `new_stream_read_builder` of every table class, and the names of the stream's classes. Idempotent.

    `import pypaimon.streaming` calls it.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    for name in (*_TABLE_CLASSES, *_STREAM_CLASSES):
        if name in sys.modules:
            # `import_module` waits for another thread that is importing the module.
            _replace_in(import_module(name))


def paimon_class(module_name: str) -> Any:
    """pypaimon's own stream class of a module, whose name there refers to ours."""
    import_module(module_name)
    return _own_classes[module_name]


def _replace_in(module: ModuleType) -> None:
    if module.__name__ in _TABLE_CLASSES:
        getattr(module, _TABLE_CLASSES[module.__name__]).new_stream_read_builder = _new_stream_read_builder
    elif (name := _STREAM_CLASSES[module.__name__]) in vars(module):
        _replace_name(module, name)


def _replace_name(module: ModuleType, name: str) -> None:
    """Make a name of a module refer to our class.

    pypaimon's own modules still get its own class: ours is a subclass of it, and would be imported while pypaimon's
    module is being imported.
    """
    own = _own_classes[module.__name__] = vars(module)[name]

    def get_attribute(asked: str) -> Any:
        if asked != name:
            raise AttributeError(f"module {module.__name__!r} has no attribute {asked!r}")
        return own if _is_paimons(sys._getframe(1).f_globals.get("__name__", "")) else _ours(name)

    module.__dict__["__getattr__"] = get_attribute
    delattr(module, name)


def _is_paimons(module_name: str) -> bool:
    return module_name.startswith("pypaimon.") and not module_name.startswith("pypaimon.tests.")


def _ours(name: str) -> Any:
    return getattr(import_module("pypaimon.streaming"), name)


def _new_stream_read_builder(table: ReadableTable) -> StreamReadBuilder:
    """A builder of streams of this table; see `pypaimon.streaming.StreamReadBuilder`."""
    from pypaimon.streaming.read_builder import StreamReadBuilder

    return StreamReadBuilder(table)


class _Finder(MetaPathFinder):
    """Finds pypaimon's modules by the other finders, and changes the listed ones after their import."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module that must be changed, None for any other."""
        if name not in _TABLE_CLASSES and name not in _STREAM_CLASSES:
            return None
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((found for found in others if found is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    """Loads a module by its own loader, and changes it afterwards."""

    def __init__(self, own: Loader) -> None:
        self._own = own

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module by its own loader, which it keeps, and change it."""
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._own
        self._own.exec_module(module)
        _replace_in(module)
