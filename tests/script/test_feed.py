"""The loop and the diagnosis take turns in one thread."""

import contextlib
import threading

import pytest

from bottleneck.script.feed import Feed


def run_loop(feed, stop_after=None):
    """A training loop: what it was given, until the diagnosis has ended."""
    given = []
    while len(given) != stop_after:
        batch = feed.next_batch()
        if feed.is_done:
            break
        given.append(batch)
    return given


def test_each_step_of_the_diagnosis_is_one_turn_of_the_loop():
    order = []

    def diagnose(step):
        for batch in "abc":
            order.append(f"before {batch}")
            step(batch)
            order.append(f"after {batch}")
        return "outcome"

    feed = Feed(diagnose)
    assert run_loop(feed) == ["a", "b", "c"]
    assert feed.outcome == "outcome"
    assert order == ["before a", "after a", "before b", "after b", "before c", "after c"]


def test_a_loop_that_ends_early_ends_the_step():
    seen = []

    def diagnose(step):
        try:
            while True:
                step(0)
        except ValueError as error:
            seen.append(error)
            return "what there is"

    feed = Feed(diagnose)
    assert len(run_loop(feed, stop_after=3)) == 3
    feed.end(ValueError("no more"))
    assert (feed.is_done, feed.outcome, str(seen[0])) == (True, "what there is", "no more")


def test_an_end_that_is_taken_for_something_else_comes_again():
    # Guards: what watches a step tries once more where the step raises.
    def diagnose(step):
        with contextlib.suppress(ValueError):
            step(0)
        step(1)

    feed = Feed(diagnose)
    run_loop(feed, stop_after=1)
    with pytest.raises(ValueError, match="no more"):
        feed.end(ValueError("no more"))
    assert feed.is_done


def test_how_long_the_loop_has_had_its_batch_is_known():
    times = iter([10.0, 13.0, 20.0])
    feed = Feed(lambda step: step(0), clock=lambda: next(times))
    assert feed.lent_s() is None
    feed.next_batch()
    assert feed.lent_s() == 3.0
    feed.next_batch()
    assert (feed.is_done, feed.lent_s()) == (True, None)


def test_a_loop_in_another_thread_ends_the_diagnosis_when_it_is_told_to():
    # Guards: a greenlet cannot be entered from any other thread than its own.
    ended = []

    def diagnose(step):
        try:
            while True:
                step(0)
        except ValueError as error:
            ended.append(str(error))

    feed = Feed(diagnose)

    def loop():
        feed.next_batch()
        told.wait()
        feed.next_batch()

    told = threading.Event()
    thread = threading.Thread(target=loop)
    thread.start()
    assert not feed.can_end_here
    assert (feed.end_soon(ValueError("first")), feed.end_soon(ValueError("second"))) == (True, False)
    told.set()
    thread.join()
    assert (feed.is_done, ended) == (True, ["first"])
