"""`paimon-stream tail --group`: what a member of a group has of a table."""

from __future__ import annotations

from contextlib import closing
from functools import partial

import click
from rich.console import Console

from pypaimon.streaming.builder.builder import StreamReadBuilder
from pypaimon.streaming.cli.output import console
from pypaimon.streaming.cli.rows import row_writer
from pypaimon.streaming.concurrency.termination import on_sigterm


def tail_group(
    builder: StreamReadBuilder, group: str, member: str | None, *, form: str, most: int | None, batch_bytes: int
) -> None:
    """Print the rows and changes of what a member of a group has, and on standard error what that is.

    What was printed is confirmed when more is asked for. It ends by Ctrl-C, SIGTERM, after `most` rows, or at the
    end of the stream; then it leaves the group.

    Args:
        builder: How the table is read.
        group: The group's id.
        member: Name of the member; None: one of its own.
        form: One of `FORMATS`.
        most: How many rows are printed; None: all.
        batch_bytes: A plan with more bytes of rows comes as several batches.
    """
    stderr = Console(stderr=True)

    def tell(what: str, slots: tuple[int, ...]) -> None:
        stderr.print(f"{what} {', '.join(map(str, slots))}", highlight=False)

    shared = builder.with_group(
        group,
        member=member,
        on_assigned=partial(tell, "assigned slots"),
        on_revoked=partial(tell, "gives up slots"),
        on_lost=partial(tell, "lost slots"),
    )
    schema = builder.new_read().schema
    with (
        shared.open_sync(read_ahead_bytes=0, batch_bytes=batch_bytes) as stream,
        on_sigterm(stream.stop),
        closing(row_writer(form, schema, console())) as writer,
    ):
        for batch in stream:
            for rows in batch.data.to_batches():
                writer.write(batch, rows.slice(0, most))
                if most is not None and (most := most - rows.num_rows) <= 0:
                    return


def check_alone(given: dict[str, object]) -> None:
    """Refuse options that do not go with `--group`.

    Args:
        given: Values of those options by name.

    Raises:
        click.UsageError: One of them was given.
    """
    for name, value in given.items():
        if value:
            raise click.UsageError(f"{name} does not go with --group")
