"""What takes too long in Python is ended; the rest is left alone."""

import signal
import threading

import pytest

from bottleneck.measure.trace import TimeLimitExceeded, time_limit

pytestmark = pytest.mark.integration


def test_a_wait_without_end_is_ended():
    before = signal.getsignal(signal.SIGURG)
    with pytest.raises(TimeLimitExceeded), time_limit(0.05):
        threading.Event().wait(60)
    assert signal.getsignal(signal.SIGURG) is before


def test_users_who_catch_every_exception_do_not_catch_it():
    def retries():
        try:
            threading.Event().wait(60)
        except Exception:
            pytest.fail("it was caught")

    with pytest.raises(TimeLimitExceeded), time_limit(0.05):
        retries()


def test_what_is_done_in_time_is_not_ended():
    with time_limit(60):
        done = True
    assert done


def test_in_another_thread_nothing_is_ended():
    result = []

    def body():
        with time_limit(0.0):
            result.append(threading.Event().wait(0.05))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert result == [False]
