"""What two ranks in step, tunings and the loops of scripts lead to, in invented time."""

import pytest

from tests.locks.kept import check


@pytest.mark.parametrize("what", ["ranks", "tunings", "scripts"])
def test_the_same_is_measured_tried_and_kept(what):
    check(what)
