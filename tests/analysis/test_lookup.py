"""What is looked up in evidence is there and of the right type, or it is None."""

import pytest

from bottleneck.analysis import lookup

EVIDENCE = {
    "whole": 3,
    "share": 0.5,
    "true": True,
    "nan": float("nan"),
    "huge": 10**400,
    "text": "fork",
    "rows": [{"name": "a"}, "odd", None, {"name": "b", "inner": {"number": 7}}],
    "inner": {"none": None},
}


@pytest.mark.parametrize(
    ("path", "number"),
    [
        (("whole",), 3),
        (("share",), 0.5),
        (("rows", 3, "inner", "number"), 7),
        (("rows", -1, "inner", "number"), 7),
        (("true",), None),
        (("nan",), None),
        (("huge",), None),
        (("text",), None),
        (("absent",), None),
        (("inner", "none", "deeper"), None),
        (("rows", 9, "name"), None),
        (("rows", "name"), None),
        (("text", 0), None),
    ],
)
def test_a_number_is_a_finite_one_that_is_there(path, number):
    assert lookup.number_at(EVIDENCE, *path) == number


def test_texts_flags_and_rows_are_of_their_type():
    assert lookup.text_at(EVIDENCE, "text") == "fork"
    assert lookup.text_at(EVIDENCE, "whole") is None
    assert lookup.flag_at(EVIDENCE, "true") is True
    assert lookup.flag_at(EVIDENCE, "whole") is None
    assert [row["name"] for row in lookup.rows_at(EVIDENCE, "rows")] == ["a", "b"]
    assert lookup.list_at(EVIDENCE, "rows")[1:3] == ("odd", None)
    assert lookup.list_at(EVIDENCE, "text") == ()
    assert lookup.rows_at("no evidence at all", "rows") == ()
