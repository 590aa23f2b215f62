"""Putting ours in the place of pypaimon's stream: the method of its table classes, and the names of its classes.

Modules that pypaimon has imported are changed at once, the others when it imports them: a process that needs none of
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

_STREAM_CLASSES = {
    "pypaimon.read.scanner.changelog_follow_up_scanner": "ChangelogFollowUpScanner",
    "pypaimon.read.scanner.delta_follow_up_scanner": "DeltaFollowUpScanner",
    "pypaimon.read.scanner.follow_up_scanner": "FollowUpScanner",
    "pypaimon.read.scanner.incremental_diff_scanner": "IncrementalDiffScanner",
    "pypaimon.read.stream_read_builder": "StreamReadBuilder",
    "pypaimon.read.streaming_table_scan": "AsyncStreamingTableScan",
}
"""The classes of pypaimon's stream by their modules: under these names programs find ours."""

_own_classes: dict[str, Any] = {}


def install() -> None:
    """Replace `new_stream_read_builder` of every table class, and the names of the stream's classes. Idempotent.

    `import pypaimon.streaming` calls it.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    for name in (*_TABLE_CLASSES, *_STREAM_CLASSES):
        if name in sys.modules:
            # Waits for a thread that is importing it.
            _replace_in(import_module(name))


def paimon_class(module_name: str) -> Any:
    """pypaimon's own class of its stream, whose name in this module stands for ours."""
    import_module(module_name)
    return _own_classes[module_name]


def _replace_in(module: ModuleType) -> None:
    if module.__name__ in _TABLE_CLASSES:
        getattr(module, _TABLE_CLASSES[module.__name__]).new_stream_read_builder = _new_stream_read_builder
    elif (name := _STREAM_CLASSES[module.__name__]) in vars(module):
        _replace_name(module, name)


def _replace_name(module: ModuleType, name: str) -> None:
    """Have a module give ours under a name.

    pypaimon's own modules still get what they are written for: ours subclasses it, and would be imported while
    theirs is.
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


def _new_stream_read_builder(table: Any) -> StreamReadBuilder:
    """A builder of streams of this table; see `pypaimon.streaming.StreamReadBuilder`."""
    from pypaimon.streaming.builder.builder import StreamReadBuilder

    return StreamReadBuilder(table)


class _Finder(MetaPathFinder):
    """Finds the modules of pypaimon that are changed as all other finders do, and has them changed after import."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module that is changed, None for any other."""
        if name not in _TABLE_CLASSES and name not in _STREAM_CLASSES:
            return None
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((found for found in others if found is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    """Hands a module over to its own loader, and changes what comes of it."""

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
