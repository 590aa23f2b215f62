"""Feeds for training: a table whose rows several workers share, for the loaders of PyTorch, and for Ray Data."""

from pypaimon.streaming.lazy_imports import lazy_names

__getattr__, __dir__ = lazy_names(__name__, extras={"torch": "torch", "ray": "ray"})
