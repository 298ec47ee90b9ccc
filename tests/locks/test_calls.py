"""The Python calls of bottleneck per batch: time that the job does not have."""

import warnings

import pytest

from tests.locks.kept import HOW, text_now, text_of


def numbers(text):
    under, found = "", {}
    for line in text.splitlines():
        if line.startswith("#"):
            under = line.removeprefix("# ")
        else:
            experiment, _, number = line.rpartition(": ")
            found[under, experiment] = int(number)
    return found


def test_a_batch_takes_no_more_calls_than_before():
    kept, now = numbers(text_of("calls")), numbers(text_now("calls"))
    assert set(now) == set(kept)
    changed = {key: (kept[key], now[key]) for key in kept if kept[key] != now[key]}
    told = "\n".join(f"{job}, {where}: {was} -> {is_}" for (job, where), (was, is_) in changed.items())
    if any(is_ > was for was, is_ in changed.values()):
        pytest.fail(f"More calls a batch than in calls.txt:\n{told}", pytrace=False)
    if changed:
        warnings.warn(f"Fewer calls a batch; lower the numbers with {HOW.format('calls')}:\n{told}", stacklevel=1)
