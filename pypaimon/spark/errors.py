"""Errors as Spark shows them: a readable line above the stack names the table and says what to do in Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from pypaimon.streaming.errors import PaimonStreamError, PositionExpiredError

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="_InContext")

_CHECKPOINT = "the checkpoint of the query (in the directory that its option 'checkpointLocation' names)"
"""Spark does not pass this directory to a source, nor whether the query has one."""

_OPTIONS = {
    method: method.removeprefix("with_").replace("_", "-")
    for method in (
        "with_blob_places", "with_consumer_id", "with_filter", "with_include_row_kind", "with_on_overwrite", "with_raw",
        "with_row_kind_column", "with_start", "with_time_zone",
    )
} | {"with_projection": "columns"}  # fmt: skip
"""Spark's options by the methods of the Python API that errors of the library name."""
_CALL = re.compile(rf"({'|'.join(_OPTIONS)})\b(?:\(((?:\.\.\., )?(?:(unmatched)=)?[^()]*)\))?")


class PaimonSourceError(Exception):
    """An error in one line, shown as the cause."""


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """What a message says in addition to its error.

    Attributes:
        table: The table, as the options name it; None if they do not.
        streaming: Whether it is the source of a stream, which resumes at a checkpoint.
        loses_data: Whether the query skips expired snapshots (`failOnDataLoss` = `false`).
    """

    table: str | None = None
    streaming: bool = False
    loses_data: bool = False

    @staticmethod
    def of(options: Mapping[str, str], *, streaming: bool = False) -> ErrorContext:
        """Read the context from the options of a source or sink. Their names are compared without case."""
        given = {key.lower(): value for key, value in options.items()}
        loses_data = given.get("failondataloss", "true").lower() == "false"
        return ErrorContext(given.get("table", given.get("path")), streaming, loses_data)

    def message(self, error: PaimonStreamError) -> str:
        """The text of an error in Spark's terms, without secrets: Spark shows it as the text of another error too."""
        from pypaimon.streaming.redaction import without_secrets

        text = without_secrets(self._text(error))
        table = None if self.table is None else without_secrets(self.table)
        return text if table is None or table in text else f"{table}: {text}"

    def _text(self, error: PaimonStreamError) -> str:
        from pypaimon.streaming.errors import (
            ConsumerConflictError,
            PositionBeyondLatestError,
            PositionExpiredError,
            SchemaChangedError,
            TableChangedError,
        )

        if (advice := _commit_advice(error)) is not None:
            return advice
        if isinstance(error, PositionExpiredError):
            return f"{error.message} {self._after_expiry(error)}"
        if isinstance(error, ConsumerConflictError):
            return f"Option 'consumer-id': {error}"
        if isinstance(error, SchemaChangedError):
            again = f"Call load() again and restart the query: it resumes at {_CHECKPOINT} with the new schema."
            return f"{error.message} {again if self.streaming else 'Call load() again.'}"
        if isinstance(error, PositionBeyondLatestError) or (isinstance(error, TableChangedError) and error.advice):
            if not self.streaming:
                return f"{error.message} Call load() again."
            return (
                f"{error.message} The position is that of {_CHECKPOINT}. If this is the wrong directory, give the "
                "query its own. Otherwise decide what to undo of what it has read, then start it with a new directory."
            )
        return in_options(str(error))

    def _after_expiry(self, error: PositionExpiredError) -> str:
        if not self.streaming:
            return "Read a snapshot that exists. Tags keep theirs; 'snapshot.time-retained' keeps all for longer."
        keep = (
            "Option 'consumer-id' keeps snapshots until they are read, the table's 'snapshot.time-retained' and "
            "'changelog.time-retained' for longer."
        )
        if self.loses_data or error.earliest_needs_it:
            return (
                f"Option 'failOnDataLoss' does not help here: start with another directory than {_CHECKPOINT}. {keep}"
            )
        return (
            f"The query resumes there from {_CHECKPOINT}, or starts there. Set option 'failOnDataLoss' = 'false' to "
            f"resume at the earliest snapshot, without the changes in between, or start with a new directory. {keep}"
        )


def in_options(text: str) -> str:
    """A text of the library with Spark's options instead of calls of the Python API.

    `with_on_overwrite('fail')` becomes `option 'on-overwrite' = 'fail'`, and `with_projection(...)` `option 'columns'`.
    """

    def option(call: re.Match[str]) -> str:
        name = call[3] or _OPTIONS[call[1]]
        value = (call[2] or "").rpartition("=")[2].strip("'\"").removeprefix("...")
        word = "Option" if call.start() == 0 else "option"
        return f"{word} '{name}'" + (f" = '{value.lower() if value in ('True', 'False') else value}'" if value else "")

    return _CALL.sub(option, text)


def _commit_advice(error: PaimonStreamError) -> str | None:
    from pypaimon.streaming.errors import BatchOrderError, CommitUnknownError, QueryReusedError

    if isinstance(error, CommitUnknownError):
        return (
            f"{error.message} Check whether the rows of this batch are in the table, then restart once with option "
            f"'assume-committed' = '{error.batch}' if they are, or 'assume-missing' = '{error.batch}' if they are not."
        )
    if isinstance(error, BatchOrderError):
        return (
            f"{error.message} A stream commits in order: another driver has replaced this one, or its checkpoint was "
            "reset and it reads other rows than before. Start the query with a new checkpoint, or write these rows "
            "separately (spark.write)."
        )
    if isinstance(error, QueryReusedError):
        return (
            f"{error.message} It comes from another streaming query: with a new checkpoint Spark counts from 0 again. "
            "Give the new query a 'query-id' of its own."
        )
    return None


class readable_errors:
    """Put the error above the traceback, in Spark's terms.

    Spark shows a Python worker's whole traceback, whose last line is the message. A cause without a traceback of its
    own is printed before it, so that the message is the first line too. Where Spark simplifies tracebacks it drops
    causes, so errors of settings, whose stack does not help, are raised without one. (A generator-based context
    manager could not drop the stack: `contextlib` restores it.)
    """

    def __init__(self, context: ErrorContext) -> None:
        self._context = context

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, stack: Any) -> None:
        from pypaimon.streaming.errors import PaimonStreamError, StreamConfigError, UnsupportedTableError

        if isinstance(error, PaimonStreamError):
            text = self._context.message(error)
            error.args = (text,)
            if isinstance(error, (StreamConfigError, UnsupportedTableError)):
                raise error.with_traceback(None) from _first_line(text)
            raise error from _first_line(text)


def _first_line(text: str) -> PaimonSourceError:
    return PaimonSourceError(" ".join(text.split()))


class _InContext(Protocol):
    @property
    def error_context(self) -> ErrorContext: ...


def readable(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with readable_errors(self.error_context):
            return method(self, *args, **kwargs)

    return call
