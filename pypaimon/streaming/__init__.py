"""Follow an Apache Paimon table from Python: exact, cheap, fast streaming reads.

Importing this package makes `new_stream_read_builder()` of every table class return `StreamReadBuilder` of this
package, and programs that import the classes of pypaimon's stream from their modules get ours (nothing else changes in
pypaimon, and its own modules keep its own classes). `stream_read_builder(table)` is the same without touching the
classes.
`__init__.pyi` lists the public names. Each is imported when it is first used.
"""

from typing import Any

from pypaimon.streaming.install import install
from pypaimon.streaming.lazy_imports import lazy_names

install()

_public_name, __dir__ = lazy_names(__name__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("pypaimon-streaming")
    try:
        return _public_name(name)
    except AttributeError:
        from pypaimon.streaming.former_names import find_former

        return find_former(name)
