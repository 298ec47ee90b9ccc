"""The user's functions in each experiment, how often and in which order, for each kind of dataset."""

from tests.locks.kept import check


def test_what_runs_of_each_kind_of_dataset():
    check("stages")
