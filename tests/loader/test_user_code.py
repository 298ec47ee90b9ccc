"""Whatever the user's dataset or collate function raises is described, and arrives whole and once."""

import pytest

from bottleneck.loader import modes
from bottleneck.loader.user_code import GivenUp, NoShareError, UserCode, UserCodeError, describe_failure, find_failure


class Leave(BaseException):
    """As some libraries derive theirs, so that no `except Exception` catches it."""


def source_that(error, worker=1):
    class Raising:
        def __getitem__(self, index):
            raise error

        def __iter__(self):
            raise error

    def collate(samples):
        raise error

    return UserCode(Raising(), collate, worker, batched=True)


CALLS = [
    lambda user_code: user_code.fetch([5]),
    lambda user_code: user_code.item(5),
    lambda user_code: user_code.next_item(),
    lambda user_code: user_code.collate([5]),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit("bad"), Leave("bad"), KeyboardInterrupt("bad")])
def test_whatever_the_users_code_raises_in_a_worker_is_described(call, error):
    with pytest.raises(UserCodeError) as caught:
        call(source_that(error))
    failure = find_failure(caught.value)
    assert failure.error.endswith(f"{type(error).__name__}: bad")
    assert failure.worker == 1


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("error", "worker"), [(KeyboardInterrupt(), None), (GivenUp(), 1), (GivenUp(), None)])
def test_an_interruption_in_the_main_process_and_the_end_of_a_replay_pass(call, error, worker):
    with pytest.raises(type(error)):
        call(source_that(error, worker))


def test_an_empty_stream_is_no_failure():
    with pytest.raises(NoShareError):
        UserCode([], list, 1, batched=True).next_item()


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
