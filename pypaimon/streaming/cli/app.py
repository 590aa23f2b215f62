"""The program `paimon-stream`: its commands, its exit codes, and errors as one line on stderr."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from paimon_stream import ending_on_interrupt
from pypaimon.streaming.cli.messages import ShownLines, is_unicode, shown, text_of
from pypaimon.streaming.cli.options import catalog_options, log_options, wants_stack
from pypaimon.streaming.errors import PaimonStreamError, StreamConfigError
from pypaimon.streaming.lazy_imports import deferred_imports, use_pyarrow_without_pandas

FAILED, USAGE, TRY_AGAIN, INTERRUPTED, BROKEN_PIPE = 1, 2, 75, 130, 141
_PROGRAM = "paimon-stream"

_SUMMARIES = {
    "branch": "Create, list, rename, merge and delete the branches of a table, and fast-forward it to one.",
    "compact": "Compact what is due in TABLE, as its options say.",
    "compact-chain-table": "Merge partitions of the delta branch of TABLE, a chain table, into its snapshot branch.",
    "consumers": "List, reset and delete the consumers of a table.",
    "copy": "Copy the table SOURCE into the table TARGET, and with --follow every change of it.",
    "demo": "Write into a table in a temporary directory, and follow it on screen.",
    "doctor": "Examine TABLE once, and report what a stream of it yields.",
    "explain": "Show what a stream of TABLE would read next, without reading it.",
    "files": "Show the data files of TABLE, a bucket per line.",
    "lag": "Show the lag of each consumer of TABLE, or of each ID.",
    "maintain": "Expire partitions, snapshots, tags and the like of TABLE, and delete what nothing needs.",
    "materialize-deletion-vectors": "Drop the deleted rows from the files of TABLE, which has data evolution.",
    "partitions": "List and drop the partitions of a table, and mark them as done.",
    "remove-missing-files": "Make TABLE readable again whose data files are gone from the store.",
    "rescale": "Divide the rows of TABLE into another number of BUCKETS.",
    "rewrite-file-index": "Give data files of TABLE the file indexes that its options ask for.",
    "rollback": "Make an earlier snapshot of TABLE the latest one.",
    "snapshots": "Show the snapshots of TABLE, and whether a stream scans each of them.",
    "tables": "List the tables of DATABASE, or of all databases.",
    "tag": "Create, replace, rename, delete and list the tags of a table.",
    "tail": "Print the rows of TABLE, and with --follow then every change of it.",
    "write": "Write the rows of FILE, or of stdin, into TABLE.",
}
"""The commands. Each is imported when it is used, because most import pypaimon's catalogs."""
_MODULES = {
    "compact-chain-table": "compact",
    "doctor": "inspect",
    "materialize-deletion-vectors": "compact",
    "rescale": "compact",
    "rewrite-file-index": "compact",
    "snapshots": "inspect",
    "tables": "inspect",
}
"""The modules of commands that have none of their own name."""


class _Program(click.Group):
    """Imports commands when they are used, and turns an error into an exit code and at most one line on stderr."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _SUMMARIES and cmd_name not in self.commands:
            self.add_command(_imported(cmd_name))
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_SUMMARIES.items()))

    def make_context(self, *arguments: Any, **settings: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **settings)
        except BrokenPipeError:
            raise click.exceptions.Exit(BROKEN_PIPE) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            return INTERRUPTED
        except StreamConfigError as error:
            return _fail(error, USAGE)
        except PaimonStreamError as error:
            return _fail(error, TRY_AGAIN if error.retriable else FAILED)
        except BrokenPipeError:
            return BROKEN_PIPE
        except Exception as error:  # noqa: BLE001 - any error of a catalog or a store becomes one line here
            return _fail(error, FAILED)


@click.group(
    _PROGRAM,
    cls=_Program,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
        "auto_envvar_prefix": "PAIMON_STREAM",
    },
    epilog="""\b
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 lag above --max-lag, 75 the store failed and trying again may help,
130 interrupted, 141 the reader of the output has gone. The options below can also follow a command. Every option can
come from the environment: --poll of tail is PAIMON_STREAM_TAIL_POLL; --warehouse of all commands is
PAIMON_STREAM_WAREHOUSE.

\b
Examples:
  paimon-stream demo
  paimon-stream tables --warehouse s3://bucket/warehouse
  paimon-stream tail db.orders --follow --start 10m --filter "status = 'paid'"
  paimon-stream lag db.orders --max-lag 5m
  paimon-stream doctor db.orders
  paimon-stream write db.orders orders.parquet
  paimon-stream explain db.orders --start 42 --filter "day = '2026-11-21'"
""",
)
@click.version_option(package_name="pypaimon-streaming", prog_name=_PROGRAM)
@catalog_options
@log_options
def program() -> None:
    """Follow and write Apache Paimon tables, and inspect their streams and consumers.

    The catalog comes from --warehouse, --catalog-option and --config, or from paimon.yaml in this directory.
    """
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(ShownLines(f"{_PROGRAM}: %(message)s"))
    logging.basicConfig(handlers=[lines], level=logging.WARNING)


@click.command(
    epilog="""\b
Examples:
  paimon-stream demo
  paimon-stream demo --seconds 10 --interval 0.1
"""
)
@log_options
@click.option("--seconds", type=click.FloatRange(0), default=60, show_default=True, help="How long to follow it.")
@click.option("--interval", type=click.FloatRange(0.01), default=0.5, show_default=True, help="Seconds between writes.")
@click.option("--plain", is_flag=True, help="No colours, also on a terminal.")
def demo(seconds: float, interval: float, plain: bool) -> int:
    """Write into a table in a temporary directory, and follow it on screen."""
    from pypaimon.streaming import demo as live_demo

    return live_demo.run(seconds, interval, plain)


program.add_command(demo)


def _imported(name: str) -> click.Command:
    """The command of a module of its name.

    pypaimon imports pandas and polars for annotations and for readers that few commands use.
    """
    try:
        with ending_on_interrupt():
            use_pyarrow_without_pandas()
            with deferred_imports("pandas", "polars", annotations=("DataFrame",)):
                attribute = name.replace("-", "_")
                module = import_module(f"pypaimon.streaming.cli.{_MODULES.get(name, attribute)}")
                command: click.Command = getattr(module, attribute)
    except ModuleNotFoundError as error:
        if error.name not in ("rich", "yaml"):
            raise
        text = f"{error.name} is missing; pip install 'pypaimon-streaming[cli]' brings it"
        raise click.ClickException(text) from error
    return command


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code.

    Args:
        arguments: The arguments after the program's name; None for those of this process.
    """
    if not is_unicode() and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = program.main(args=arguments, prog_name=_PROGRAM, standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        return _refuse(error)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        code = BROKEN_PIPE
    if code == BROKEN_PIPE:
        _forget_stdout()
    return int(code or 0)


def _refuse(error: click.ClickException) -> int:
    text = " ".join(error.format_message().split())
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
        error.show()
    elif isinstance(error, click.UsageError) and error.ctx is not None:
        _complain(f"{text} (see {error.ctx.command_path} --help)")
    else:
        _complain(text)
    return error.exit_code


def _complain(text: str) -> None:
    print(shown(f"{_PROGRAM}: {text}"), file=sys.stderr)  # noqa: T201 - the one line


def _fail(error: Exception, code: int) -> int:
    if wants_stack(click.get_current_context()):
        raise error
    text = text_of(error)
    if not isinstance(error, PaimonStreamError):
        text = f"{type(error).__name__}: {text}"
    _complain(text)
    return code


def _forget_stdout() -> None:
    """Keep the interpreter from reporting at its exit that the pipe is broken."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
