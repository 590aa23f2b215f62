"""`warn_about_ignored`: names the options that change what Java compacts and not what is compacted here."""

from __future__ import annotations

from collections.abc import Iterator

from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.table_kinds import ChangelogProducer

_LOG = StreamLog(__name__)
_warned: set[tuple[str, str]] = set()


def warn_about_ignored(table: PaimonTable) -> None:
    """Log them, once in a process for each table."""
    options = ", ".join(_ignored(table))
    if options and (table.path, options) not in _warned:
        _warned.add((table.path, options))
        text = "compactions of %(table)s ignore options that those of Java heed: %(options)s"
        _LOG.warning("compaction_options_ignored", text, table=table.name, options=options)


def _ignored(table: PaimonTable) -> Iterator[str]:
    options = table.options
    for key in (option_keys.COMPACTION_FILE_NUM_LIMIT, option_keys.LOOKUP_COMPACT_MAX_INTERVAL):
        if key.set_as(options):
            yield f"'{key}' = '{key.of(options)}'"
    if option_keys.LOOKUP_COMPACT.of(options) != option_keys.LOOKUP_COMPACT.default:
        yield f"'{option_keys.LOOKUP_COMPACT}' = '{option_keys.LOOKUP_COMPACT.of(options)}'"
    commits = option_keys.FULL_COMPACTION_DELTA_COMMITS.of(options)
    # With this producer every compaction is a full one, as those of batch jobs in Java are.
    if commits is not None and table.traits.producer is not ChangelogProducer.FULL_COMPACTION:
        yield f"'{option_keys.FULL_COMPACTION_DELTA_COMMITS}' = '{commits}'"
