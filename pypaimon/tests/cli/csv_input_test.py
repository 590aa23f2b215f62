"""CSV as text, in blocks that end where a row does."""

from __future__ import annotations

import io
import random
import subprocess
import sys

import pytest

from pypaimon.streaming.cli import input_files
from pypaimon.streaming.cli.input_files import BadInputError, csv_batches
from support.samples import sample_seed

pytestmark = pytest.mark.slow

PIECES = ["a", "é", '5" x', '"', "\n", "\r\n", ",", ";", ""]


def read(text: str, delimiter: str = ",", known: tuple[str, ...] = ("a", "b", "c")) -> list[list[str | None]]:
    source = io.BufferedReader(io.BytesIO(text.encode()))
    return [[*row.values()] for batch in csv_batches(source, delimiter, known) for row in batch.to_pylist()]


def drawn_cell(draw: random.Random) -> str | None:
    return "".join(draw.choices(PIECES, k=draw.randint(0, 4))) if draw.random() < 0.8 else None


def written(cell: str | None, delimiter: str, quotes: bool) -> str:
    if cell is None:
        return ""
    special = not cell or any(each in cell for each in f'{delimiter}"\r\n')
    return '"' + cell.replace('"', '""') + '"' if special or quotes else cell


def test_rows_are_the_same_wherever_blocks_end(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(sample_seed())
    for _ in range(500):
        monkeypatch.setattr(input_files, "_BLOCK", draw.choice([1, 2, 3, 5, 8, 50, 1 << 20]))
        names, delimiter = "abc"[: draw.randint(2, 3)], draw.choice(",;")
        rows = [[drawn_cell(draw) for _ in names] for _ in range(draw.randint(0, 12))]
        lines = [delimiter.join(written(cell, delimiter, draw.random() < 0.3) for cell in row) for row in rows]
        text = "".join(line + draw.choice(["\n", "\r\n"]) for line in [delimiter.join(names), *lines])
        assert read(text, delimiter) == rows, text


def test_an_empty_line_is_a_null_of_a_single_column_and_nothing_else() -> None:
    assert read("a\n\n1\n\n") == [[None], ["1"], [None]]
    assert read("a,b\n\n1,\n\n") == [["1", None]]


@pytest.mark.parametrize("block", [1, 1 << 20])
def test_a_row_of_empty_fields_between_tabs_is_one_however_it_comes(
    monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(input_files, "_BLOCK", block)
    assert read("a\tb\n\t\n\n \t\n", "\t") == [[None, None], [" ", None]]


def test_lines_that_end_otherwise_are_an_error_that_says_so() -> None:
    with pytest.raises(BadInputError, match="the header of the input is not CSV"):
        read("a,b\r1,2\r")


def test_the_last_row_needs_no_line_end() -> None:
    assert read('a,b\n1,2\n3,"4"') == [["1", "2"], ["3", "4"]]


def test_a_row_without_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "_BLOCK", 8)
    monkeypatch.setattr(input_files, "_MOST_OF_A_ROW", 1 << 10)
    with pytest.raises(ValueError, match="is there a quote that never ends"):
        read('a,b\n1,"' + "2,3\n" * 1000)


def test_rows_are_counted_over_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "_BLOCK", 8)
    with pytest.raises(ValueError, match="row 8: the header has 2 columns, but this row has 1: 'x'"):
        read("a,b\n" + "1,2\n" * 7 + "x\n")


def test_a_program_that_fails_on_it_ends_as_it_should() -> None:
    """A thread of Arrow's that still reads would end the process with SIGABRT."""
    code = (
        "import sys\n"
        "from pypaimon.streaming.cli.input_files import csv_batches\n"
        "list(csv_batches(sys.stdin.buffer, ',', ['a', 'b']))"
    )
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], input=b"a,b\n1,2\n3\n", capture_output=True)
        assert done.returncode == 1 and b"BadInputError: row 2" in done.stderr
