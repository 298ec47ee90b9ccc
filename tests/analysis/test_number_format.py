import pytest

from bottleneck.results.format import (
    count,
    duration,
    gain,
    gain_interval,
    names,
    number,
    percent,
    percent_interval,
    plural,
    significant,
    size,
)
from bottleneck.results.records import Interval


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(0.38, 0.36, 0.40), "38 % (36–40 %)"),
        (Interval(0.012, 0.004, 0.02), "1.2 % (0.4–2.0 %)"),
        (Interval(0.991, 0.989, 0.993), "99.1 % (98.9–99.3 %)"),
        (Interval(-0.003, -0.01, 0.004), "−0.3 % (−1.0 to 0.4 %)"),
        (Interval(0.0, -0.0001, 0.0001), "0.0 % (0.0–0.0 %)"),
        (Interval(0.59, -247.23, 1.0), "59 % (nothing sure yet)"),
    ],
)
def test_percent_interval(interval, text):
    assert percent_interval(interval) == text


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(2.3, 2.2, 2.4), "2.3x (2.2–2.4)"),
        (Interval(1.05, 1.03, 1.07), "1.05x (1.03–1.07)"),
        (Interval(2.30, 2.28, 2.32), "2.30x (2.28–2.32)"),
    ],
)
def test_gain_interval(interval, text):
    assert gain_interval(interval) == text


def test_counts_and_numbers():
    assert [count(v) for v in (1702.4, 648, 99.96, 64.83, 0.1234, 0)] == [
        "1,702",
        "648",
        "100",
        "64.8",
        "0.123",
        "0",
    ]
    assert [number(-0.04, 1), number(-1234.5, 1)] == ["0.0", "−1,234.5"]
    assert [significant(0.001234), significant(123456)] == ["0.00123", "123,456"]
    assert [percent(0.38), percent(0.012), percent(0.05, 0)] == ["38 %", "1.2 %", "5 %"]
    assert [gain(2.31), gain(1.049)] == ["2.3x", "1.05x"]


def test_durations():
    assert [duration(s) for s in (12.3, 1.2, 0.0247, 0.0094, 0.00002)] == [
        "12.3 s",
        "1.20 s",
        "24.7 ms",
        "9.40 ms",
        "20 µs",
    ]
    assert duration(0.0001) == "0.10 ms"
    assert duration(-0.0013) == "−1.30 ms"


def test_enumerations():
    assert [names([]), names(["a"]), names(["a", "b"]), names(["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
    assert [plural(1, "round"), plural(1200, "round")] == ["1 round", "1,200 rounds"]


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "0.977 KiB"), (370 * 2**20, "370 MiB"), (1.2 * 2**30, "1.20 GiB"),
     (2**49, "512 TiB"), (1e300, "–")],
)  # fmt: skip
def test_size(size_bytes, text):
    assert size(size_bytes) == text
