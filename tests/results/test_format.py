"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bottleneck.reports.evidence import described
from bottleneck.results import format as numbers
from bottleneck.results.format import count, duration, gain, names, number, percent, plural, significant, size
from bottleneck.results.records import Interval, Rate


def test_counts_and_numbers():
    assert [count(v) for v in (1702.4, 99.96, 64.83, 0.1234, 0)] == ["1,702", "100", "64.8", "0.123", "0"]
    assert [number(-0.04, 1), number(-1234.5, 1)] == ["0.0", "−1,234.5"]
    assert [significant(0.001234), significant(123456)] == ["0.00123", "123,456"]
    assert [percent(0.38), percent(0.012), percent(0.05, 0)] == ["38 %", "1.2 %", "5 %"]
    assert [gain(2.31), gain(1.049)] == ["2.3x", "1.05x"]


def test_durations():
    shown = ["12.3 s", "1.20 s", "24.7 ms", "0.10 ms", "20 µs", "−1.30 ms"]
    assert [duration(s) for s in (12.3, 1.2, 0.0247, 0.0001, 0.00002, -0.0013)] == shown


def test_enumerations():
    assert [names([]), names(["a"]), names(["a", "b"]), names(["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]
    assert [plural(1, "round"), plural(1200, "round")] == ["1 round", "1,200 rounds"]


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "0.977 KiB"), (370 * 2**20, "370 MiB"), (1.2 * 2**30, "1.20 GiB"),
     (2**49, "512 TiB"), (1e300, "–")],
)  # fmt: skip
def test_size(size_bytes, text):
    assert size(size_bytes) == text


INF, NAN = math.inf, math.nan


def rate(estimate: float, half_width: float) -> Rate:
    return Rate(estimate, estimate - half_width, estimate + half_width, 1.0, ())


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(0.38, 0.36, 0.40), "38 % (36–40 %)"),
        (Interval(0.012, 0.004, 0.020), "1.2 % (0.4–2.0 %)"),
        (Interval(0.012, -0.004, 0.020), "1.2 % (−0.4 to 2.0 %)"),
        (Interval(0.991, 0.989, 0.993), "99.1 % (98.9–99.3 %)"),
        (Interval(0.38, -INF, INF), "38 % (interval unknown)"),
        (None, "–"),
    ],
)
def test_percent_interval(interval, text):
    assert numbers.percent_interval(interval) == text


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(2.3, 2.2, 2.4), "2.3x (2.2–2.4)"),
        (Interval(1.02, 1.0, 1.04), "1.02x (1.00–1.04)"),
        (Interval(2.30, 2.28, 2.32), "2.30x (2.28–2.32)"),
        (Interval(1.36, 0.001, 1293.18), "1.36x (0.00–100+)"),
        (Interval(2.3, 2.2, INF), "2.3x (2.2–100+)"),
        (None, "–"),
    ],
)
def test_gain_interval(interval, text):
    assert numbers.gain_interval(interval) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0.0 s"), (1.23, "1.2 s"), (47.3, "47 s"), (59.7, "1 min 0 s"), (125, "2 min 5 s"), (None, "–")],
)
def test_long_duration(seconds, text):
    assert numbers.long_duration(seconds) == text


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("memory_bytes", 2**30, "1.00 GiB"),
        ("first_batch_s", 0.84, "840 ms"),
        ("dataset_length", 1281167, "1,281,167"),
        ("cores", 8.0, "8"),
        ("pin_memory", True, "True"),
        ("device", "cpu", "cpu"),
        ("odd_bytes", INF, "inf"),
    ],
)
def test_the_key_of_a_value_says_its_unit(key, value, text):
    assert described(key, value) == text


@pytest.mark.parametrize(
    ("number", "text"), [(1702.13, "1702"), (702.13, "702.1"), (0.00123456, "0.001235"), (2e6, "2000000")]
)
def test_bare(number, text):
    assert numbers.bare(number) == text


@pytest.mark.parametrize(
    ("low", "high", "text"), [(1690, 1714, "1,702 ± 12"), (290, 2310, "290–2,310"), (0.0006, 4.4e8, "about 1,702")]
)
def test_a_rate_of_which_nothing_is_known_has_no_interval(low, high, text):
    assert numbers.rate_with_half_width(Rate(1702.0, low, high, 1.0, ())) == text


@given(st.floats())
def test_no_number_is_too_odd_to_be_shown(number):
    interval = Interval(number, number, number)
    for text in (
        numbers.count(number),
        numbers.duration(number),
        numbers.duration_interval(interval),
        numbers.percent(number),
        numbers.percent_interval(interval),
        numbers.gain_interval(interval),
        numbers.long_duration(number),
        numbers.size(number),
        numbers.whole(number),
        numbers.rate_with_half_width(rate(number, 1.0)),
    ):
        assert (text == numbers.UNKNOWN) == (not abs(number) < numbers.LARGEST)
        assert len(text) < 100
