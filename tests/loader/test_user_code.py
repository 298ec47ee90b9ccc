"""Whatever the user's dataset or collate function raises is described; what is not theirs passes."""

import pytest

from bottleneck.loader.user_code import GivenUp, NoShareError, UserCode, UserCodeError, find_failure


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
