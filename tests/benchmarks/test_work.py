"""Planted work lasts as long as it says: shown with clocks that the test moves."""

from collections import defaultdict

import pytest

from benchmarks import work
from benchmarks.work import spin, wait


class Clocks:
    """The clock of one process: sleeping moves it, later than asked by a fixed lateness, and so does each reading."""

    def __init__(self, lateness_s: float = 0.0, tick_s: float = 0.0) -> None:
        self.wall_s = 100.0
        self.lateness_s, self.tick_s = lateness_s, tick_s
        self.slept: list[float] = []

    def perf_counter(self) -> float:
        self.wall_s += self.tick_s
        return self.wall_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.wall_s += seconds + self.lateness_s


@pytest.fixture
def clocks(monkeypatch):
    def install(**arguments):
        clocks = Clocks(**arguments)
        monkeypatch.setattr(work, "time", clocks)
        monkeypatch.setattr(work, "_debts_s", defaultdict(float))
        return clocks

    return install


def test_wait_counts_what_was_done_since_the_mark(clocks):
    now = clocks()
    planted = wait(0.010)
    mark = planted.begin()
    now.wall_s += 0.004
    planted.complete(mark)
    assert now.slept == [pytest.approx(0.006)]


def test_late_sleeps_do_not_add_up(clocks):
    now = clocks(lateness_s=0.0002)
    start, planted = now.wall_s, wait(0.001)
    for _ in range(100):
        planted.run()
    # Without the correction this would be 120 ms.
    assert now.wall_s - start == pytest.approx(0.100, abs=0.0003)


def test_a_long_stop_is_not_made_up_for(clocks):
    now = clocks(lateness_s=0.5)
    planted = wait(0.002)
    planted.run()
    now.lateness_s = 0.0
    start = now.wall_s
    for _ in range(10):
        planted.run()
    assert now.wall_s - start >= 10 * 0.002 - work.MAX_DEBT_S - 1e-9


def test_a_stage_does_not_pay_for_the_one_before(clocks):
    now = clocks(lateness_s=0.0005)
    late, punctual = wait(0.002), wait(0.002)
    late.run()
    now.lateness_s = 0.0
    start = now.wall_s
    punctual.run()
    assert now.wall_s - start == pytest.approx(0.002)


def test_rounds_of_spinning_do_not_add_up(clocks):
    now = clocks(tick_s=0.0003)
    start_s, planted = now.wall_s, spin(0.001)
    for _ in range(100):
        planted.run()
    # Each begins with a reading of the clock, before its mark. Without the correction each would end late as well.
    assert now.wall_s - start_s == pytest.approx(0.100 + 100 * 0.0003, abs=0.0007)


@pytest.mark.parametrize("kind", [wait, spin])
def test_no_work_takes_no_time(clocks, kind):
    now = clocks()  # a clock that never moves: spinning would never end
    kind(0.0).run()
    assert now.slept == []
