"""Classes whose objects streams hand out, for annotations and comparisons; the reference describes them."""

from pypaimon.streaming.lazy_imports import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
