"""Fields of JSON objects: types are checked, what is missing is an error, and a newer version is refused by name."""

from __future__ import annotations

import pytest

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.json_fields import canonical_json, fields_of, parse_fields

FIELDS = fields_of({"n": 1, "t": "x", "b": True, "l": ["x"], "o": {"n": 2}, "z": None}, "thing")


def test_fields_of_the_right_type_are_returned() -> None:
    assert (FIELDS.get("n", int), FIELDS.get("t", str), FIELDS.get("b", bool)) == (1, "x", True)
    assert FIELDS.texts("l") == ("x",) and FIELDS.object("o").get("n", int) == 2
    assert FIELDS.optional("z", int) is None and FIELDS.optional("missing", str) is None
    assert [each.get("n", int) for each in fields_of({"l": [{"n": 1}, {"n": 2}]}, "thing").objects("l")] == [1, 2]


@pytest.mark.parametrize(("key", "kind"), [("missing", int), ("t", int), ("b", int), ("n", bool), ("z", str)])
def test_fields_of_another_type_are_errors_that_name_the_field(key: str, kind: type) -> None:
    with pytest.raises(ValueError, match=f"{key}: expected {kind.__name__}"):
        FIELDS.get(key, kind)


@pytest.mark.parametrize("text", ["[]", "1", "null", '"{}"', "{", b"\xff"])
def test_what_is_not_an_object_is_an_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (of json, of the decoder, or of this module)
        parse_fields(text, "thing")


def test_a_newer_version_asks_for_a_newer_library() -> None:
    parse_fields('{"version":1}', "thing").check_version(1)
    with pytest.raises(StreamConfigError, match=r"thing of format version 2: .* update it"):
        parse_fields('{"version":2}', "thing").check_version(1)


def test_canonical_json_has_no_spaces_and_keeps_other_letters() -> None:
    assert canonical_json({"a": [1, "ä"], "b": None}) == '{"a":[1,"ä"],"b":null}'
