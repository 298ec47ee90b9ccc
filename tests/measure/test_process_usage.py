"""Processes: what they use, and that one which is gone or closed to us is no error."""

import os
import sys
import time

import psutil
import pytest

from bottleneck.measure.usage import process
from bottleneck.measure.usage.process import (
    MemoryReading,
    cpu_seconds,
    memory_growth,
    read_memory,
    thread_count,
)

NOBODY = 2**22 - 1
"""A process id that is not in use."""


def readings(*megabytes, every_s=3.0):
    return [MemoryReading(number * every_s, int(mb * 1e6), 0) for number, mb in enumerate(megabytes)]


def test_the_cpu_time_of_another_process_is_the_one_that_it_has_itself():
    began = time.process_time()
    used_s = cpu_seconds(os.getpid())
    assert began <= used_s <= time.process_time()


def test_where_the_clock_of_a_process_is_not_to_be_had_its_times_are_read(monkeypatch):
    def refuse(clock):
        raise OSError

    monkeypatch.setattr(time, "clock_gettime", refuse)
    assert cpu_seconds(os.getpid()) == pytest.approx(time.process_time(), abs=1.0)


def test_a_process_that_is_gone_gives_nothing():
    assert cpu_seconds(NOBODY) is None
    assert thread_count(NOBODY) is None
    assert read_memory([os.getpid(), NOBODY], 0.0) is None


def test_a_process_that_may_not_be_looked_at_gives_nothing(monkeypatch):
    class Closed(psutil.Process):
        def memory_full_info(self):
            raise psutil.AccessDenied(self.pid)

        num_threads = cpu_times = memory_full_info

    monkeypatch.setattr(psutil, "Process", Closed)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert read_memory([os.getpid()], 0.0) is None
    assert thread_count(os.getpid()) is None
    assert cpu_seconds(os.getpid()) is None


def test_memory_of_processes_is_added_up(monkeypatch):
    one = read_memory([os.getpid()], 1.0)
    two = read_memory([os.getpid(), os.getpid()], 1.0)
    assert one.private_bytes > 1e6
    assert two.private_bytes == pytest.approx(2 * one.private_bytes, rel=0.05)


def test_memory_that_climbs_has_its_rate():
    growth = memory_growth(readings(50, 100, 103, 106, 109, 112))
    assert growth.bytes_per_s == pytest.approx(1e6)
    assert growth.error_bytes_per_s == pytest.approx(0, abs=1.0)


def test_memory_that_only_fills_up_at_first_does_not_climb():
    # Guards: the first batches of each experiment make a process larger, once.
    growth = memory_growth(readings(50, 90, 100, 100.1, 99.9, 100, 100.1, 99.9, 100))
    assert abs(growth.bytes_per_s) < 2 * growth.error_bytes_per_s + 1e4


@pytest.mark.parametrize("few", [readings(), readings(1, 2, 3, 4), readings(1, 2, 3, 4, 5, 6, every_s=0.5)])
def test_of_too_few_readings_or_too_short_a_time_no_growth_is_told(few):
    assert memory_growth(few) is None


def test_the_shared_part_is_unknown_where_the_system_does_not_tell(monkeypatch):
    class Mac(psutil.Process):
        def memory_full_info(self):
            return type("Memory", (), {"uss": 7})()

    monkeypatch.setattr(process.psutil, "Process", Mac)
    assert read_memory([os.getpid()], 2.0) == MemoryReading(2.0, 7, None)
