"""`paimon-stream doctor`: examines a table and reports what its streams yield, cost and risk."""

from __future__ import annotations

import textwrap

import click
from rich.console import Console

from pypaimon.streaming.cli.messages import shown
from pypaimon.streaming.cli.output import Record, console, format_option, printable, to_json
from pypaimon.streaming.cli.tables import TableSource, on_table, retry_option
from pypaimon.streaming.doctor.checks import diagnose
from pypaimon.streaming.doctor.findings import Diagnosis, Finding, Level, count

_STYLES = {Level.OK: "green", Level.NOTE: "", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}

_HEAD = 2 + max(len(level.value) for level in Level)
_LEAST_WIDTH = 40


@click.command(
    epilog="""\b
Examples:
  paimon-stream doctor db.orders
  paimon-stream doctor db.orders --json | jq '.findings[] | select(.level != "ok")'
  paimon-stream doctor db.orders || page-someone

\b
Exit codes: 1 if there is a problem; warnings do not count.
"""
)
@on_table
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@format_option
@retry_option
def doctor(source: TableSource, form: str, as_json: bool) -> int:
    """Examine TABLE once, and report what a stream of it yields, what it costs, and which risks it has.

    Covers its kind and changelog, expiry compared with the consumers' progress, files that a first plan opens and
    merges, files that are due for compaction, and snapshots that streams skip. Each finding is ok, a note, a warning or
    a problem. Nothing is written. JSON is one object.
    """
    diagnosis = diagnose(source.load())
    if as_json or form == "json":
        click.echo(to_json(_record(diagnosis)))
    else:
        _show(diagnosis, console())
    return 0 if diagnosis.is_healthy else 1


def _record(diagnosis: Diagnosis) -> Record:
    return {
        "table": diagnosis.table,
        "healthy": diagnosis.is_healthy,
        "findings": [_finding(each) for each in diagnosis.findings],
        "requests": diagnosis.requests,
    }


def _finding(finding: Finding) -> Record:
    return {
        "check": finding.check,
        "level": finding.level.value,
        "text": finding.text,
        "advice": finding.advice or None,
        "facts": finding.facts,
    }


def _show(diagnosis: Diagnosis, out: Console) -> None:
    for finding in diagnosis.findings:
        _print(out, finding.level.value, finding.text, _STYLES[finding.level])
        if finding.advice:
            _print(out, "", f"-> {finding.advice}", "")
    asked = ", ".join(f"{number} {kind}" for kind, number in diagnosis.requests.items())
    out.print(f"{diagnosis.table}: {_summary(diagnosis)}; requests: {asked}", style="bold", markup=False)


def _print(out: Console, head: str, text: str, style: str) -> None:
    for line in textwrap.wrap(printable(shown(text)), max(_LEAST_WIDTH, out.width - _HEAD - 1)):
        out.print(f"{head:{_HEAD}}{line}", style=style, markup=False, soft_wrap=True)
        head = ""


def _summary(diagnosis: Diagnosis) -> str:
    levels = [finding.level for finding in diagnosis.findings]
    problems, warnings = levels.count(Level.PROBLEM), levels.count(Level.WARNING)
    return f"{count(problems, 'problem')}, {count(warnings, 'warning')}"
