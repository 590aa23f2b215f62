"""The registry of options is the one place for their names, and the documentation comes from it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import pypaimon.spark
import pypaimon.streaming
from pypaimon.streaming import StreamConfigError
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import OptionKey, Use
from support.docs.option_table import PAGE, with_tables

NAMES = {name for key in option_keys.OPTION_KEYS for name in (key.name, *key.aliases)}
REGISTRY = "option_keys.py"
OF_THE_MODEL = "time_zone.py"
"""Names the option `time-zone`, which the registry takes from it, because the model imports no options."""


def constants() -> dict[str, OptionKey[object, object]]:
    return {name: key for name, key in vars(option_keys).items() if isinstance(key, OptionKey)}


def test_a_constant_is_called_like_its_option_and_no_option_is_there_twice() -> None:
    for name, key in constants().items():
        assert name == key.name.replace("#.", "").replace(".", "_").replace("-", "_").upper()
    assert len(NAMES) == sum(1 + len(key.aliases) for key in option_keys.OPTION_KEYS)


def test_every_option_says_what_it_does() -> None:
    for key in option_keys.OPTION_KEYS:
        assert key.meaning or key.left_out, key.name


def literals() -> Iterator[tuple[Path, str]]:
    for package in (pypaimon.streaming, pypaimon.spark):
        for path in Path(package.__path__[0]).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield path, node.value


def test_no_other_module_spells_the_name_of_an_option() -> None:
    """Names of one word (`bucket`, `branch`) are also those of columns and arguments."""
    spelled = [(path.name, text) for path, text in literals()]
    found = {(name, text) for name, text in spelled if text in NAMES and set(text) & set(".-")}
    of_fields = {(name, text) for name, text in spelled if text.startswith(("fields.#", "file-index.#"))}
    assert {name for name, _ in found | of_fields} == {REGISTRY, OF_THE_MODEL}


def test_the_page_of_options_is_that_of_the_registry() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tables(page), "run pypaimon/tests/support/run.py support.docs.option_table"
    assert all(f"`{name}`" in page for name in NAMES)


def test_a_former_name_counts_if_the_new_one_is_not_set() -> None:
    key = option_keys.IGNORE_DELETE
    assert key.of({"first-row.ignore-delete": "true"})
    assert not key.of({"ignore-delete": "false", "first-row.ignore-delete": "true"})
    assert key.set_as({"ignore-delete": None, "deduplicate.ignore-delete": "true"}) == "deduplicate.ignore-delete"
    with pytest.raises(StreamConfigError, match=r"'maybe' for key 'first-row.ignore-delete'"):
        key.of({"first-row.ignore-delete": "maybe"})


def test_the_option_of_a_field_names_the_field_in_its_errors() -> None:
    key = option_keys.FIELDS_COUNT_LIMIT.of_field("a.b")
    assert key.of({"fields.a.b.count-limit": "3"}) == 3
    assert key.of({}) == option_keys.FIELDS_COUNT_LIMIT.default
    with pytest.raises(StreamConfigError, match=r"'many' for key 'fields.a.b.count-limit'. Set a whole number"):
        key.of({"fields.a.b.count-limit": "many"})


def test_what_a_default_stands_for_can_be_set_as_well() -> None:
    """Defaults are values of the kind of their option."""
    for key in option_keys.OPTION_KEYS:
        text = key.kind.name.startswith(("number", "size", "duration"))
        if text and key.default is not None:
            assert key.of({key.name: str(key.default)}) == key.default, key.name


def test_known_names_are_those_of_a_use_and_the_ignored_ones() -> None:
    of_reads = option_keys.known_names(Use.READ)
    assert {"scan.mode", "log.scan", "fields.aggregate-function", "scan.bounded"} <= of_reads
    assert not of_reads & {"target-file-size", "compaction.size-ratio"}
    assert of_reads < option_keys.known_names()
