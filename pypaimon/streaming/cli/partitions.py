"""Partitions and file counts: options of commands, and their output."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypedDict, TypeVar, cast

import click
from rich.filesize import decimal

from pypaimon.streaming.cli.output import Record
from pypaimon.streaming.cli.settings import duration
from pypaimon.streaming.cli.tables import pairs
from pypaimon.streaming.compaction.reports import FileCount
from pypaimon.streaming.doctor.findings import count

F = TypeVar("F", bound=Callable[..., Any])


class Chosen(TypedDict):
    """The chosen partitions, as arguments of `compact`."""

    partition: Mapping[str, str] | None
    where: str | None
    partition_idle_time: timedelta | None


def partition_options(command: F) -> F:
    """Give a command `--partition`, `--where` and `--idle`; the function is called with `chosen`."""

    @functools.wraps(command)
    def with_chosen(*args: Any, partition: tuple[str, ...], where: str | None, idle: str | None, **kwargs: Any) -> Any:
        age = None if idle is None else duration(idle)
        if idle is not None and age is None:
            raise click.UsageError(f"--idle {idle!r}: give a time as 90s, 5m, 2h, 1d")
        chosen = Chosen(partition=pairs(partition, "--partition") or None, where=where, partition_idle_time=age)
        return command(*args, chosen=chosen, **kwargs)

    wrapped: Any = with_chosen
    for option in (
        click.option("--idle", metavar="TIME", help="Only partitions without files younger than this (90s, 5m, 1d)."),
        click.option("--where", metavar="CONDITION", help="Only partitions with this: \"day < '2026-11-01'\"."),
        click.option("--partition", metavar="COLUMN=VALUE", multiple=True, help="Only partitions with this value."),
    ):
        wrapped = option(wrapped)
    return cast(F, wrapped)


def partition_text(partition: Mapping[str, Any]) -> str:
    """`day=2026-11-21/hour=8`."""
    return "/".join(f"{name}={value}" for name, value in partition.items())


def partition_record(partition: Mapping[str, Any]) -> Record:
    """A partition for JSON: numbers as they are, other values as text."""
    plain = (bool, int, float, type(None))
    return {name: value if isinstance(value, plain) else str(value) for name, value in partition.items()}


def files_text(files: FileCount) -> str:
    """`3 files (1.2 MB)`."""
    return f"{count(files.files, 'file')} ({decimal(files.bytes)})"


def counted(files: FileCount) -> Record:
    """Files for JSON."""
    return {"files": files.files, "bytes": files.bytes, "records": files.rows}
