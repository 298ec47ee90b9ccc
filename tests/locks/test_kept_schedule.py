"""Which experiment is visited in which round, in which order and for how many batches, in invented time."""

from tests.locks.kept import check


def test_the_schedule_of_five_jobs():
    check("schedule")
