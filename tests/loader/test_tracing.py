"""A process may allow to be looked into, and takes it back; where the kernel knows no such thing nothing happens."""

import ctypes
import sys

import pytest

from bottleneck.loader import engine


class Library:
    """Stands in for the C library."""

    def __init__(self, status):
        self.calls = []
        self._status = status

    def prctl(self, *args):
        self.calls.append([arg.value if isinstance(arg, ctypes.c_ulong) else arg for arg in args])
        return self._status


@pytest.fixture
def library(monkeypatch):
    made = Library(0)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: made)
    return made


def test_any_process_of_the_user_is_allowed(library):
    assert engine.allow_tracing()
    assert library.calls == [[0x59616D61, ctypes.c_ulong(-1).value, 0, 0, 0]]


def test_it_is_taken_back(library):
    assert engine.forbid_tracing()
    assert library.calls[0][1] == 0


def test_a_kernel_that_does_not_know_it_is_no_failure(library):
    library._status = -1
    assert not engine.allow_tracing()


def test_other_systems_are_left_alone(library, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not engine.allow_tracing()
    assert library.calls == []
