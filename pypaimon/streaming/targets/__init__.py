"""Targets: tables, files and dicts that hold the rows of a Paimon table and follow its changes.

`target` defines what a target is, `plan_transactions` applies plans to a table with transactions, `changes` reduces a
batch to rows to set and rows to remove. Of several changes of one key in a batch the last one counts. `+I` and `+U`
set a row, `-U` and `-D` remove it: a `-U` comes alone if a filter leaves out what the row became. A full state, at the
start of a stream or later (`Batch.begins_state`), replaces what the target holds, so a target belongs to one stream.
"""

from pypaimon.streaming.lazy_imports import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
