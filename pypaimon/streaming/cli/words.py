"""What errors of the library advise, in the words of the program."""

from __future__ import annotations

import re

_WORDS = [
    (r"on_expired='earliest' \| 'latest' \| 'full'", "--on-expired earliest, latest or full"),
    (r"on_expired='latest' \| 'full'", "--on-expired latest or full"),
    (r", or choose on_schema_change='follow' \| 'ignore'", ""),
    (r"Build a new stream from a freshly loaded table and continue at this position", "Start the program again"),
    (r"with_filter\(\.\.\., unmatched='drop'\)", "--unmatched drop"),
    (
        r"[Ss]tart (?:anew|again) with with_start\(\.\.\.\)",
        "say where to go on, --start or paimon-stream consumers reset",
    ),
    (r"use stream_read_builder\(table, view=\.\.\.\)", "name it behind the table: 'db.table$audit_log'"),
    (r"with_raw\(True\) reads the records as they were written\.", ""),
    (r"with_start\(snapshot_id=(\d+), full=True\)", "--start latest-full"),
    (r"with_start\(tag=\.\.\.\)", "--start tag:NAME"),
    (r"with_start\((.*?)\)", "--start"),
    (r"with_projection\((.*?)\)", "--columns"),
    (r"with_filter\((.*?)\)", "--filter"),
    (r"with_blob_places\(\.\.\.\)", "--blob-place"),
    (r"with_consumer_id\(\.\.\.\)", "--consumer-id"),
    (r"with_on_expired\((.*?)\)", "--on-expired"),
    (r"with_time_zone\(\.\.\.\), or the table option 'time-zone'", "--table-option time-zone=..."),
    (r"on_new_column='(\w+)'", r"--on-new-column \1"),
    (r"time_unit='ms', 'us' or 'ns'", "--time-unit ms, us or ns"),
    (r"\btime_unit\b", "--time-unit"),
    (r"\btime_zone\b(=\.\.\.)?", "--time-zone"),
    (r"\bunavailable_value_placeholder\b", "--unavailable-value-placeholder"),
    (r"with_commit_user\b", "--commit-user"),
    (r"with_row_kind_column\b", "--kind-column"),
    (r"give the target replace=True", "give --replace"),
    (r"give a target of one table replace=True", "give --replace for one table"),
    (r"with_poll_interval_ms\b(\(.*?\))?", "--poll"),
]


def in_the_words_of_the_program(text: str) -> str:
    """A text of the library without calls of Python that the program has options for."""
    for pattern, words in _WORDS:
        text = re.sub(pattern, words, text)
    return text
