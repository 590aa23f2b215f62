"""`Lazy`: a value that costs requests, made by the first thread that needs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Lazy(Generic[T]):
    """A value that is made when it is first needed, and then shared. Thread-safe without a lock.

    Threads that need it at the same time each make it, and the first result counts: with a lock, all would wait for one
    request that hangs. An error is raised to the thread that met it, and the next one tries again. A pickle holds the
    value.

    Args:
        make: Makes the value, from the arguments of `get`. Never returns None.
    """

    def __init__(self, make: Callable[..., T]) -> None:
        self._make = make
        self._made: dict[str, T] = {}

    @staticmethod
    def of(value: T) -> Lazy[T]:
        """A value that is known already."""
        lazy = Lazy(lambda: value)
        lazy.get()
        return lazy

    def __reduce__(self) -> tuple[Any, ...]:
        return Lazy.of, (self.get(),)

    @property
    def known(self) -> T | None:
        """The value; None if it was not made yet."""
        return self._made.get("value")

    def get(self, *args: Any) -> T:
        """The value; blocks while it is made, and raises the errors of making it."""
        known = self.known
        return self._made.setdefault("value", self._make(*args)) if known is None else known
