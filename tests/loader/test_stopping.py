"""An interrupted job ends without a word from Python's own threads."""

import sys

import pytest

from bottleneck.loader.running import keep_quiet_about_broken_receivers

RAISE = """
def fail(error):
    raise error
"""


def told_of(monkeypatch, module, error):
    """What the hook before ours gets to hear of an error that a module raised."""
    told = []
    monkeypatch.setattr(sys, "excepthook", lambda *what: told.append(what[1]))
    keep_quiet_about_broken_receivers()
    code = {"__name__": module}
    exec(RAISE, code)
    with pytest.raises(type(error)) as raised:
        code["fail"](error)
    inside = raised.tb.tb_next
    sys.excepthook(type(error), error, inside)
    return told


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), ConnectionResetError(), EOFError()])
def test_a_receiver_that_is_gone_is_not_told(monkeypatch, error):
    assert told_of(monkeypatch, "multiprocessing.resource_sharer", error) == []


@pytest.mark.parametrize(
    ("module", "error"),
    [("multiprocessing.resource_sharer", KeyError("x")), ("user_job", BrokenPipeError(32, "Broken pipe"))],
)
def test_all_else_is_told_as_before(monkeypatch, module, error):
    assert told_of(monkeypatch, module, error) == [error]
