"""The experiments of each round, their order and their batches, in invented time."""

from tests.locks.kept import check


def test_the_schedule_of_five_jobs():
    check("schedule")
