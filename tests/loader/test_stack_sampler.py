"""The sampler inside a worker counts stacks, tells waiting from computing and ends in order."""

import sys
import threading

import pytest

from bottleneck.loader.observe.stack_sampler import StackSampler


class Times:
    """Invented time."""

    def __init__(self):
        self.now_s = self.cpu_s = 0.0

    def pass_(self, seconds, cpu_s):
        self.now_s += seconds
        self.cpu_s += cpu_s


def make_sampler(times, cpu_clock=None):
    return StackSampler(100.0, lambda: times.now_s, cpu_clock or (lambda: times.cpu_s))


def frame_here():
    return sys._getframe()


def take_inside(sampler):
    sampler.take(frame_here())


def counted(sampler):
    return list(sampler._sampled.stacks.items())


def test_a_sample_counts_its_whole_stack_from_the_outermost_frame_inwards():
    sampler = make_sampler(Times())
    take_inside(sampler)
    [(frames, seen)] = counted(sampler)
    assert [function for function, _, _ in frames[-2:]] == ["take_inside", "frame_here"]
    assert frames[-1][1:] == (__file__, frame_here.__code__.co_firstlineno)
    assert seen.count == 1


def test_time_without_cpu_time_is_waiting():
    times = Times()
    sampler = make_sampler(times)
    frame = frame_here()
    for cpu_s in (0.010, 0.0, 0.005, 0.020):  # the last one more than has passed, as clocks of two kinds may say
        times.pass_(0.010, cpu_s)
        sampler.take(frame)
    [(_, seen)] = counted(sampler)
    assert seen.count == 4
    assert seen.computing == pytest.approx(1.0 + 0.0 + 0.5 + 1.0)


def test_without_a_clock_for_cpu_time_waiting_is_unknown():
    times = Times()
    sampler = make_sampler(times, lambda: None)
    times.pass_(0.01, 0.0)
    sampler.take(frame_here())
    [(_, seen)] = counted(sampler)
    assert seen.computing is None


def test_a_thread_that_has_ended_is_not_counted():
    sampler = make_sampler(Times())
    sampler.take(None)
    assert counted(sampler) == []


def test_it_ends_and_leaves_the_interpreter_as_it_was():
    before = sys.getswitchinterval()
    sampler = StackSampler(1000.0)
    sampler.start()
    assert sys.getswitchinterval() < before
    sampler.stop()
    assert sys.getswitchinterval() == before
    assert not any(thread.name == "bottleneck-stack-sampler" for thread in threading.enumerate())
