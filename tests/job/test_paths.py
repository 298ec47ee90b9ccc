"""Paths are followed, written and read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bottleneck.job.inspect import Item, parse_path, resolve, write_path

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]*", fullmatch=True)
KEYS = st.one_of(NAMES, st.integers(0, 99), st.builds(Item, NAMES))


class Holder:
    def __init__(self):
        self.steps = [{"crop": abs}]


def test_a_path_leads_through_attributes_positions_and_keys():
    assert resolve(Holder(), ("steps", 0, Item("crop"))) is abs
    assert resolve("text", ()) == "text"


@given(st.lists(KEYS, min_size=1).map(tuple))
def test_what_is_written_is_read_back(path):
    assert parse_path(write_path(path)) == path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("dataset.transform", ("dataset", "transform")),
        ("steps[0].crop", ("steps", 0, "crop")),
        ("steps.0", ("steps", 0)),
        ("transform.", ("transform",)),
        ("steps[ 2 ]", ("steps", 2)),
        ("a['x.y'][\"z\"]", ("a", Item("x.y"), Item("z"))),
    ],
)
def test_paths_are_read_as_people_write_them(text, path):
    assert parse_path(text) == path


@pytest.mark.parametrize("text", ["", ".", "steps[", "steps[]", "steps]", "a['x", "'x'"])
def test_what_is_no_path_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011 - the message is for nobody
        parse_path(text)
