"""Options that several commands share.

Some belong together, as one frozen object whose fields are its options:

    @dataclass(frozen=True)
    class Service:
        poll: float | None = option("--poll", type=float)

    @click.command()
    @grouped("service", Service)
    def tail(service: Service) -> None: ...

Others are accepted before a command and after it. The last one wins.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import click
from click.core import ParameterSource

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
    retry: bool = option("--retry", is_flag=True, help="Wait out errors that may pass, for as long as they last.")


@dataclass(frozen=True)
class Service(Retrying):
    poll: float | None = option(
        "--poll", type=click.FloatRange(0.01), metavar="SECONDS", help="Pause between polls. [default: 1]"
    )

    def set_poll_interval(self, builder: _Polling) -> None:
        if self.poll is not None:
            builder.with_poll_interval_ms(max(1, round(self.poll * 1000)))


C = TypeVar("C")
_GIVEN = "pypaimon.streaming.cli.given"
_DEBUG = "pypaimon.streaming.cli.debug"


def given(context: click.Context) -> dict[str, Any]:
    """The catalog's options that were given so far, by the names of their parameters."""
    found: dict[str, Any] = context.meta.setdefault(_GIVEN, {})
    return found


def wants_stack(context: click.Context) -> bool:
    return bool(context.meta.get(_DEBUG))


def log_options(command: C) -> C:
    return _with(
        command,
        _option("--verbose", "-v", is_flag=True, callback=_log_more, help="Log events to stderr."),
        _option("--debug", is_flag=True, callback=_keep_stacks, help="Show the stack trace of an error."),
    )


def catalog_options(command: C) -> C:
    return _with(
        command,
        _option(
            "--warehouse",
            "-w",
            metavar="PATH",
            help="Directory or URI of the warehouse. [env: PAIMON_STREAM_WAREHOUSE]",
        ),
        _option("--catalog-option", "-o", metavar="KEY=VALUE", multiple=True, help="An option of the catalog."),
        _option(
            "--config",
            "-c",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="YAML file with options of the catalog, as for pypaimon's own program. [default: paimon.yaml]",
        ),
        _option(
            "--table-option",
            metavar="KEY=VALUE",
            multiple=True,
            shell_complete=_known_options,
            help="A dynamic option of the table.",
        ),
        _option(
            "--connect-timeout",
            type=click.FloatRange(0, min_open=True),
            metavar="SECONDS",
            help="How long to wait until the table is found. [default: 10]",
        ),
    )


def _known_options(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from pypaimon.streaming.options.known_options import accepted_names

    return sorted(f"{name}=" for name in accepted_names() if name.startswith(incomplete))


def _option(*names: str, callback: Any = None, **settings: Any) -> Any:
    return click.option(*names, expose_value=False, callback=callback or _remember, **settings)


def _with(command: C, *options: Callable[[Any], Any]) -> C:
    found: Any = command
    for option in reversed(options):
        found = option(found)
    return cast(C, found)


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value in (None, ()):
        return
    found, name = given(context), str(parameter.name)
    if parameter.multiple:
        found[name] = (*found.get(name, ()), *value)
    elif name not in found or context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
        found[name] = value


def _log_more(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        logging.getLogger("pypaimon").setLevel(logging.INFO)


def _keep_stacks(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        context.meta[_DEBUG] = True
