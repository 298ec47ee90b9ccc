"""Ends that pass by every `except` of the script; nothing is ended here."""

import os
import signal
import threading

import pytest

from bottleneck.errors import MeasurementError
from bottleneck.script.ends import Ends


class Left(BaseException):
    """In the place of the end of the process."""


def leave(error):
    raise Left(error)


def lent(seconds):
    return lambda: seconds


@pytest.fixture
def handlers():
    """The handler of Ctrl-C, and what it was called with."""
    calls = []
    previous = signal.signal(signal.SIGINT, lambda number, _: calls.append(number))
    yield calls
    signal.signal(signal.SIGINT, previous)


def test_an_exit_of_the_script_is_no_exit_of_the_process():
    before = os._exit
    with pytest.raises(Left) as caught, Ends(leave, lent(1.0), 60.0):
        os._exit(7)
    assert caught.value.args[0].code == 7
    assert os._exit is before


def test_a_forked_child_exits_as_it_would():
    with Ends(leave, lent(1.0), 60.0):
        child = os.fork()
        if child == 0:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_ctrl_c_is_the_scripts_until_the_loop_is_fed(handlers):
    with Ends(leave, lent(None), 60.0):
        signal.raise_signal(signal.SIGINT)
    assert handlers == [signal.SIGINT]
    with pytest.raises(Left), Ends(leave, lent(1.0), 60.0):
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    assert handlers == [signal.SIGINT] * 2


def test_a_handler_that_the_script_has_set_stays(handlers):
    def own(*_):
        """Handles nothing."""

    with Ends(leave, lent(None), 60.0):
        signal.signal(signal.SIGINT, own)
    assert signal.getsignal(signal.SIGINT) is own


def test_a_loop_that_does_not_come_back_is_left():
    had = [None]
    with pytest.raises(Left) as caught, Ends(leave, lambda: had[0], 0.01):
        had[0] = 0.01
        threading.Event().wait(30.0)
    assert isinstance(caught.value.args[0], MeasurementError)
    assert "no batch for 10.0 ms" in str(caught.value.args[0])
