"""Options that belong together, as one frozen object: declared once, and shared by commands.

The fields of a group are its options:

    @dataclass(frozen=True)
    class Service:
        poll: float | None = option("--poll", type=float)

    @click.command()
    @grouped("service", Service)
    def tail(service: Service) -> None: ...
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, TypeVar, cast

import click

F = TypeVar("F", bound=Callable[..., Any])
_DECLARATION = "click"


def option(*names: str, **settings: Any) -> Any:
    """A field of a group: the option with these names and settings, as for `click.option`."""
    return field(metadata={_DECLARATION: (names, settings)})


def grouped(argument: str, group: type[Any]) -> Callable[[F], F]:
    """Give a command the options of a group; the function is called with a group under the name `argument`."""

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def call(*args: Any, **kwargs: Any) -> Any:
            values = {each.name: kwargs.pop(each.name) for each in fields(group)}
            return command(*args, **{argument: group(**values)}, **kwargs)

        wrapped: Any = call
        for each in reversed(fields(group)):
            names, settings = each.metadata[_DECLARATION]
            wrapped = click.option(*names, each.name, **settings)(wrapped)
        return cast(F, wrapped)

    return decorate


class _Polling(Protocol):
    def with_poll_interval_ms(self, poll_interval_ms: int, /) -> object: ...


@dataclass(frozen=True)
class Retrying:
    """Whether errors that may pass are waited out."""

    retry: bool = option("--retry", is_flag=True, help="Wait out errors that may pass, for as long as they last.")


@dataclass(frozen=True)
class Service(Retrying):
    """How a command follows tables."""

    poll: float | None = option(
        "--poll", type=click.FloatRange(0.01), metavar="SECONDS", help="Pause between polls. [default: 1]"
    )

    def set_poll_interval(self, builder: _Polling) -> None:
        """Set the poll interval of a builder, unless the default is wanted."""
        if self.poll is not None:
            builder.with_poll_interval_ms(max(1, round(self.poll * 1000)))
