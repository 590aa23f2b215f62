"""Questions that commands ask before they delete something."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import click

C = TypeVar("C")


def yes_option(command: C) -> C:
    """Give a command `--yes`."""
    option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
    return cast(C, option(cast(Any, command)))


def confirm(yes: bool, question: str) -> None:
    """Ask on stderr unless `yes`; the program ends if the answer is no."""
    if not yes:
        click.confirm(question, abort=True, err=True)
