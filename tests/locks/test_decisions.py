"""Outcomes of two ranks in step, of tunings and of the loops of scripts, in invented time."""

import pytest

from tests.locks.kept import check


@pytest.mark.parametrize("what", ["ranks", "tunings", "scripts"])
def test_the_same_is_measured_tried_and_kept(what):
    check(what)
