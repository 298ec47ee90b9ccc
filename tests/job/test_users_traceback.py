"""Tracebacks of the user's code: without our frames, and in short without those of libraries."""

import collections
import textwrap

from bottleneck.job.users_code import users_traceback, without_libraries
from bottleneck.loader import trees


def test_our_own_frames_are_left_out():
    def user_function(_):
        raise ValueError("mine")

    try:
        trees.map_leaves(user_function, [1])
    except ValueError as error:
        shown = users_traceback(error)
    assert "in user_function" in shown
    assert "in map_leaves" not in shown
    assert shown.endswith("ValueError: mine")


def test_in_short_frames_of_libraries_are_a_number():
    text = f"""\
        Traceback (most recent call last):
          File "/home/me/train.py", line 3, in __getitem__
            return self.rows[index]
                   ~~~~~~~~~^^^^^^^
          File "{collections.__file__}", line 7, in __getitem__
            return self.data[key]
          File "{collections.__file__}", line 9, in __missing__
            raise KeyError(key)
        KeyError: two
            lines"""
    assert without_libraries(textwrap.dedent(text)) == textwrap.dedent("""\
        Traceback (most recent call last):
          File "/home/me/train.py", line 3, in __getitem__
            return self.rows[index]
                   ~~~~~~~~~^^^^^^^
          (2 frames of libraries left out: --traceback shows all)
        KeyError: two
            lines""")


def test_a_text_without_frames_stays_as_it_is():
    text = "Traceback (most recent call last):\n    odd\nValueError: bad sample"
    assert without_libraries(text) == text
