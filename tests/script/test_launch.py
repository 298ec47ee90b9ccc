"""A file that is no script is refused before anything is imported; ends that pass by every except are in order."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from bottleneck.errors import MeasurementError, UsageError
from bottleneck.script.launch import Ends, Script


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing.py", "no script 'missing.py'"),
        ("folder", "'folder' is a folder"),
        ("train.ipynb", "a notebook, not a Python script. In the notebook, write with bottleneck.diagnosing()"),
        ("train.sh", "a shell script, not a Python script. In the shell script, write bottleneck run"),
        ("train", None),
        ("project", None),
    ],
)
def test_what_is_no_script_is_refused(tmp_path, monkeypatch, name, said):
    monkeypatch.chdir(tmp_path)
    for folder in ("folder", "project"):
        (tmp_path / folder).mkdir()
    for file in ("project/__main__.py", "train.ipynb", "train.sh", "train"):
        (tmp_path / file).touch()
    script = Script(name, ())
    if said is None:
        script.check()
    else:
        with pytest.raises(UsageError) as caught:
            script.check()
        assert said in str(caught.value)


def test_commands_are_imported_where_there_are_no_signals_to_choose_from():
    code = "import signal; del signal.SIGRTMAX, signal.SIGHUP; import bottleneck.cli.measure, bottleneck.cli.tune"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


class Left(BaseException):
    """Stands for the end of the process."""


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


def test_a_loop_that_does_not_come_back_is_left():
    had = [None]
    with pytest.raises(Left) as caught, Ends(leave, lambda: had[0], 0.01):
        had[0] = 0.01
        threading.Event().wait(30.0)
    assert isinstance(caught.value.args[0], MeasurementError)
    assert "no batch for 10.0 ms" in str(caught.value.args[0])
