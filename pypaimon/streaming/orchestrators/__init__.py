"""For orchestrators: which snapshots of a table are new, and a module for each framework that needs a class."""

from pypaimon.streaming.lazy_imports import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
