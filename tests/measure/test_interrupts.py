"""Ctrl-C while things are put in order takes effect afterwards, and is not lost."""

import signal
import threading

import pytest

from bottleneck.measure.keep.interrupts import interrupts_deferred


def test_ctrl_c_takes_effect_after_the_body():
    before, done = signal.getsignal(signal.SIGINT), []
    with pytest.raises(KeyboardInterrupt), interrupts_deferred():
        signal.raise_signal(signal.SIGINT)
        done.append("all of it")
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is before


def test_so_does_a_request_to_end_that_python_code_handles():
    done = []

    def end(number, frame):
        raise SystemExit(number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        with pytest.raises(SystemExit), interrupts_deferred():
            signal.raise_signal(signal.SIGTERM)
            done.append("all of it")
        assert done == ["all of it"]
        assert signal.getsignal(signal.SIGTERM) is end
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN])
def test_what_python_code_does_not_handle_is_left_alone(handler):
    before = signal.signal(signal.SIGTERM, handler)
    try:
        with interrupts_deferred():
            assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_without_ctrl_c_nothing_happens():
    before = signal.getsignal(signal.SIGINT)
    with interrupts_deferred():
        pass
    assert signal.getsignal(signal.SIGINT) is before


def test_a_handler_that_the_body_sets_stays_and_answers():
    before, answered = signal.getsignal(signal.SIGINT), []
    try:
        with interrupts_deferred():
            signal.raise_signal(signal.SIGINT)
            signal.signal(signal.SIGINT, lambda number, _: answered.append(number))
        assert answered == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_in_another_thread_the_handlers_are_left_alone():
    before, seen = signal.getsignal(signal.SIGINT), []

    def body():
        with interrupts_deferred():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [before]
