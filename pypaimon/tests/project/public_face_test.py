"""The public face stays: names, members and signatures change only where that is meant, and written down."""

from __future__ import annotations

from public_face import FILE, public_face


def test_names_and_signatures_are_those_that_are_written_down() -> None:
    assert public_face() == FILE.read_text(encoding="utf-8"), "if it is meant: python pypaimon/tests/public_face.py"
