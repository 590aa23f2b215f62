"""Runs of `paimon-stream` for tests: in this process for what it prints, as a program of its own for how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest

from pypaimon.streaming.cli.app import run
from support import programs

PROGRAM = (sys.executable, "-W", "error", "-m", "paimon_stream")


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.out.splitlines()]

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


class Program:
    def __init__(self, warehouse: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.warehouse = warehouse
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Outcome:
        return self.bare(*arguments, "--warehouse", str(self.warehouse))

    def bare(self, *arguments: str) -> Outcome:
        """One run without a catalog."""
        self._capsys.readouterr()
        code = run(arguments)
        return Outcome(code, *self._capsys.readouterr())

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """One run as a program of its own."""
        command = [*PROGRAM, *arguments, "--warehouse", str(self.warehouse)]
        return programs.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def subcommands(group: click.Group) -> dict[str, click.Command]:
    """The commands of a group by name. The program imports its own when they are asked for."""
    with click.Context(group) as context:
        found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}
