"""A failure of the user's code arrives whole, once, through whatever the loader wraps around it."""

import pytest

from bottleneck.loader import modes
from bottleneck.loader.user_code import UserCodeError, describe_failure, find_failure


def caught(error):
    try:
        raise error
    except Exception as raised:
        return raised


def described(error, **options):
    facts = {"index": 3, "worker": 1, "mode": modes.ALL, **options}
    return UserCodeError(describe_failure(caught(error), "dataset", **facts))


def test_all_facts_travel_inside_one_string():
    failure = find_failure(described(ValueError("bad sample")))
    assert failure.error == "ValueError: bad sample"
    assert failure.where == "dataset"
    assert failure.index == "3"
    assert failure.worker == 1
    assert failure.mode == modes.ALL
    assert failure.traceback.count("ValueError: bad sample") == 1
    assert "in caught" in failure.traceback


def test_it_survives_what_the_loader_writes_around_it():
    # DataLoader re-raises a worker's exception as its type, called with one string.
    text = f"Caught UserCodeError in DataLoader worker process 1.\nOriginal Traceback\n{described(KeyError('k'))}\n"
    failure = find_failure(UserCodeError(text))
    assert failure.error == "KeyError: 'k'"


@pytest.mark.parametrize("text", ["", "some other error", "<bottleneck-failure> cut off", "</bottleneck-failure>"])
def test_other_exceptions_hold_no_failure(text):
    assert find_failure(RuntimeError(text)) is None


@pytest.mark.parametrize("message", ["ümlaut ✓", "two\nlines", '"quotes" \\ backslash', "</b> <c>", "x" * 5000])
def test_any_message_survives(message):
    failure = find_failure(described(RuntimeError(message)))
    assert message in failure.traceback


def test_indices_of_any_kind_are_shown_and_long_ones_cut():
    assert find_failure(described(ValueError("x"), index=("a", 2))).index == "('a', 2)"
    assert find_failure(described(ValueError("x"), index=None)).index is None
    assert len(find_failure(described(ValueError("x"), index=list(range(1000)))).index) == 200
