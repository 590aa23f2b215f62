"""`warn_unsupported_maintenance`: what a table's options have Java do after a commit, and this library does not do."""

from __future__ import annotations

from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions

_LOG = StreamLog(__name__)

_NOTHING = ("", "none", "disabled", "false", "0 s", "0s")

_warned: set[tuple[str, str]] = set()


def left_out(options: TableOptions) -> str:
    """The options of a table that are not carried out here, with what to do instead; empty if there are none."""
    write_only = option_keys.WRITE_ONLY.of(options)
    found = [
        f"{key} ({key.left_out.instead})"
        for key in option_keys.OPTION_KEYS
        if key.left_out is not None and (key.left_out.of_every_commit or not write_only)
        if (key.text(options) or "").strip().lower() not in _NOTHING
    ]
    return ", ".join(found)


def warn_unsupported_maintenance(table: PaimonTable) -> None:
    """Log, once in a process, the maintenance that a table's options ask for and commits here do not do."""
    options = left_out(table.options)
    key = table.path, options
    if options and key not in _warned:
        _warned.add(key)
        text = "after commits to %(table)s a writer of Java would do more than is done here: %(options)s"
        _LOG.warning("upkeep_left_out", text, table=table.name, options=options)
