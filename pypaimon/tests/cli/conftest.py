"""Fixtures of the tests of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.docs.cli_runs import Program


@pytest.fixture
def program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Program:
    """Runs commands on the warehouse `tmp_path`."""
    return Program(tmp_path, capsys)
