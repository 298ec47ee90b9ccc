"""Ends that pass by every `except` of the script; nothing is ended here."""

import os
import signal
import threading

import pytest

from bottleneck.errors import MeasurementError
from bottleneck.script.launch import Ends


class Left(BaseException):
    """In the place of the end of the process."""


def leave(error):
    raise Left(error)


def lent(seconds):
    return lambda: seconds


@pytest.fixture(params=["SIGINT", "SIGTERM", "SIGHUP"])
def request_to_end(request):
    """A signal, and what its handler was called with."""
    number, calls = signal.Signals[request.param], []
    previous = signal.signal(number, lambda number, _: calls.append(number))
    yield number, calls
    signal.signal(number, previous)


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


def test_ctrl_c_is_the_scripts_until_the_loop_is_fed(request_to_end):
    number, calls = request_to_end
    with Ends(leave, lent(None), 60.0):
        signal.raise_signal(number)
    assert calls == [number]
    with pytest.raises(Left), Ends(leave, lent(1.0), 60.0):
        signal.raise_signal(number)
    signal.raise_signal(number)
    assert calls == [number] * 2


def test_a_handler_that_the_script_has_set_stays(request_to_end):
    number, _ = request_to_end

    def own(*_):
        """Handles nothing."""

    with Ends(leave, lent(None), 60.0):
        signal.signal(number, own)
    assert signal.getsignal(number) is own


def test_a_loop_that_does_not_come_back_is_left():
    had = [None]
    with pytest.raises(Left) as caught, Ends(leave, lambda: had[0], 0.01):
        had[0] = 0.01
        threading.Event().wait(30.0)
    assert isinstance(caught.value.args[0], MeasurementError)
    assert "no batch for 10.0 ms" in str(caught.value.args[0])
