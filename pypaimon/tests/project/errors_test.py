"""Errors: all in one module, each with its advice as a field, and advice of the command line for what it can set."""

from __future__ import annotations

import ast
import copy
import pickle
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

import pypaimon.streaming as package
from pypaimon.streaming import errors
from pypaimon.streaming.cli import messages
from pypaimon.streaming.cli.app import program
from pypaimon.streaming.cli.messages import text_of
from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.metadata.history import ReaderKind

ROOT = Path(package.__file__ or "").parent
SAMPLES = [
    errors.AssignmentLostError((1, 2)),
    errors.BadChangeError(3, "a", "too long", advice="Cut it.", option="time_unit"),
    errors.BatchOrderError("u", 3, 4),
    errors.CommitUnknownError("u", 3, "gone"),
    errors.CorruptTableError("s3://b/p", "cannot be decoded"),
    errors.IOTimeoutError("no answer"),
    errors.NullColumnError("a", 2),
    errors.PositionBeyondLatestError(9, 2),
    errors.PositionExpiredError(1, 2, 3, earliest_needs_it=True),
    errors.QueryReusedError("u", 3),
    errors.SchemaChangedError(0, 1, "column 'a' was dropped"),
    errors.StreamConfigError("time_unit: expected 'ms'", option="time_unit"),
    errors.StrictModeError(3, "overwrites"),
    errors.TableChangedError("rolled back", advice="Load it again."),
    errors.TableMissingError("a"),
    errors.TablesFailedError({"a": errors.StoreError("no answer")}),
    errors.UnsupportedContentError("a video", "a"),
    errors.UnsupportedFileError("s3://b/p", None, "a video"),
]


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for path in ROOT.rglob("*.py"):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def test_every_error_of_the_library_is_defined_in_one_module() -> None:
    elsewhere = [
        f"{path.relative_to(ROOT.parent)}: {node.name}"
        for path, tree in sources()
        if path.name != "errors.py" and path.parent.name != "cli"
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(isinstance(getattr(errors, getattr(base, "id", ""), None), type) for base in node.bases)
        and any(issubclass(getattr(errors, base.id), PaimonStreamError) for base in node.bases if hasattr(base, "id"))
    ]
    assert elsewhere == []
    exported = [getattr(package, name) for name in package.__all__]
    for each in exported:
        if isinstance(each, type) and issubclass(each, PaimonStreamError):
            assert each.__module__ == errors.__name__, each


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_errors_survive_pickling_and_copying_with_their_facts(error: PaimonStreamError) -> None:
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(other), str(other), other.args) == (type(error), str(error), error.args)
        assert {**other.__dict__, "errors": None} == {**error.__dict__, "errors": None}


def test_the_text_shows_message_and_advice_without_secrets() -> None:
    error = PaimonStreamError("The store refuses s3://me:pw1@host/x.", advice="Change secretKey: pw2", option="x")
    assert str(error) == "The store refuses s3://***@host/x. Change secretKey: ***"
    assert (error.advice, error.option, error.retriable) == ("Change secretKey: pw2", "x", False)
    assert PaimonStreamError("What is wrong.").advice is None


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_advice_is_not_part_of_the_message(error: PaimonStreamError) -> None:
    assert error.advice is None or error.advice not in error.message
    assert str(error) == (error.message if error.advice is None else f"{error.message} {error.advice}")


def test_the_command_line_has_its_own_words_for_every_option_that_advice_names() -> None:
    named = {
        keyword.value.value
        for _, tree in sources()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        for keyword in call.keywords
        if keyword.arg == "option" and isinstance(keyword.value, ast.Constant) and keyword.value.value is not None
    }
    # A position that expired has advice by its own facts; tensors are made in programs only.
    assert named - {"with_on_expired", "fill_nulls"} <= {*messages._ADVICE, *messages._FLAGS}
    texts = [*messages._ADVICE.values(), *messages._OF_TABLES.values()]
    assert [text for text in texts if text and re.search(r"\w\(|\bwith_|\w='", text)] == []


def test_messages_that_begin_with_an_argument_begin_with_its_flag_on_the_command_line() -> None:
    error = errors.StreamConfigError("time_unit: expected 'ms', got 's'", option="time_unit")
    assert text_of(error) == "--time-unit: expected 'ms', got 's'"


def test_advice_for_one_of_several_tables_names_no_option_of_a_single_table() -> None:
    config = import_module("pypaimon.streaming.targets.target_state").refuse_others_rows("table t")
    assert "--replace" in text_of(config)
    found = text_of(errors.TablesFailedError({"t": config}))
    assert found.startswith("1 tables were not read to the end. t: table t holds rows already")
    assert "replace=" not in found and "--replace" not in found and found.endswith("the next run makes it again.")


@pytest.mark.parametrize(
    ("command", "advice_of"),
    [
        ("tail", "Choose where to continue with --on-expired earliest, latest or full, or keep"),
        ("copy", "Choose where to continue with --on-expired full, or keep"),
        ("lag", "To keep snapshots longer, raise snapshot.time-retained or"),
    ],
)
def test_advice_after_expiry_names_the_choices_of_the_command(command: str, advice_of: str) -> None:
    with click.Context(program) as context:
        context.invoked_subcommand = command
        assert f"to 3. {advice_of}" in text_of(errors.PositionExpiredError(1, 2, 3))


@pytest.mark.parametrize(
    ("reader", "needs_it", "advice"),
    [
        (ReaderKind.STREAM, True, "Choose where to continue with on_expired='latest' | 'full', or"),
        (ReaderKind.BATCH, True, "Choose a later snapshot, or two tags, or"),
        (ReaderKind.GROUP, False, "Continue with `paimon-stream consumers reset TABLE GROUP --to earliest`"),
        (ReaderKind.GROUP, True, "Continue with `paimon-stream consumers reset TABLE GROUP --to latest`"),
    ],
)
def test_advice_after_expiry_is_what_the_reader_can_do(reader: ReaderKind, needs_it: bool, advice: str) -> None:
    with pytest.raises(errors.PositionExpiredError) as caught, reader.advising():
        raise errors.PositionExpiredError(1, 2, 3, earliest_needs_it=needs_it)
    assert f"to 3. {advice}" in str(caught.value)
    assert reader is ReaderKind.STREAM or text_of(caught.value) == str(caught.value)


def test_advice_to_start_elsewhere_names_no_start_where_the_command_has_none() -> None:
    error = errors.PositionBeyondLatestError(5, 3)
    with click.Context(program) as context:
        context.invoked_subcommand = "copy"
        assert text_of(error).endswith("so that the state of SOURCE replaces the rows of TARGET.")
        assert text_of(error, of_tables=True).endswith("Drop the copy: the next run makes it again.")
        context.invoked_subcommand = "tail"
        assert "--start" in text_of(error)
