"""`Deferred`: a value that costs requests, and is made when somebody first needs it, on the thread that does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Deferred(Generic[T]):
    """A value that is made by who needs it, and then known to all. Thread-safe, and takes no lock.

    Who needs it while another one makes it makes it too, so that nobody waits for a request of somebody else that
    hangs; the one that is made first counts. An error is for the one who met it: the next one tries again.
    A pickle holds the value.

    Args:
        make: Makes it; gets what `get` is given. Never None.
    """

    def __init__(self, make: Callable[..., T]) -> None:
        self._make = make
        self._made: dict[str, T] = {}

    @staticmethod
    def of(value: T) -> Deferred[T]:
        """A value that is known."""
        deferred = Deferred(lambda: value)
        deferred.get()
        return deferred

    def __reduce__(self) -> tuple[Any, ...]:
        return Deferred.of, (self.get(),)

    @property
    def known(self) -> T | None:
        """The value, if it was made by now."""
        return self._made.get("value")

    def get(self, *args: Any) -> T:
        """The value; blocks while it is made, and raises what goes wrong."""
        known = self.known
        return self._made.setdefault("value", self._make(*args)) if known is None else known
