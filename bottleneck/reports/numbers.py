"""The one place where reports turn numbers into text: what is unknown, what has an interval, and bars.

Rounding itself is in `bottleneck.results.format`, which the sentences of the analysis share.
"""

from __future__ import annotations

import math
from typing import TypeGuard

from bottleneck.results import format as plain
from bottleneck.results.records import Interval, Rate

UNKNOWN = "–"

LARGEST = 1e15
"""What is beyond it was not measured: an estimate divided by nearly nothing."""

_EIGHTHS = " ▏▎▍▌▋▊▉"
_FULL = "█"


def rate(samples_per_s: float | None) -> str:
    """Samples per second, such as '1,702'."""
    return plain.count(samples_per_s) if _known(samples_per_s) else UNKNOWN


def rate_with_half_width(measured: Rate | None) -> str:
    """A throughput with half its interval: '1,702 ± 12'; without it where one block leaves none."""
    if measured is None or not _known(measured.samples_per_s):
        return UNKNOWN
    half_width = (measured.high - measured.low) / 2
    if not 0 < half_width < LARGEST:
        return plain.count(measured.samples_per_s)
    # Digits beyond the second of the uncertainty say nothing.
    decimals = min(3, max(0, 1 - math.floor(math.log10(half_width))))
    if measured.samples_per_s >= 99.95:
        decimals = 0 if half_width >= 0.95 else min(decimals, 1)
    return f"{plain.number(measured.samples_per_s, decimals)} ± {plain.number(half_width, decimals)}"


def duration(seconds: float | None) -> str:
    """A time, such as '24.7 ms'."""
    return plain.duration(seconds) if _known(seconds) else UNKNOWN


def duration_interval(interval: Interval | None) -> str:
    """A time with its interval in one unit, such as '14.1 ms (13.8–14.4)'."""
    if interval is None or not _known(interval.estimate):
        return UNKNOWN
    if not _bounded(interval):
        return plain.duration(interval.estimate)
    # The widest of the three numbers chooses the unit, so that none needs many digits.
    size, unit = _time_unit(max(abs(interval.estimate), abs(interval.low), abs(interval.high)))
    values = [value / size for value in (interval.estimate, interval.low, interval.high)]
    decimals = _time_decimals(values[0], unit)
    if interval.low < interval.high and round(values[1], decimals) == round(values[2], decimals):
        decimals += 1  # the bounds would look alike
    estimate, low, high = (plain.number(value, decimals) for value in values)
    return f"{estimate} {unit} ({_span(low, high)})"


def long_duration(seconds: float | None) -> str:
    """A time of the diagnosis itself, such as '47 s' or '2 min 5 s'."""
    if not _known(seconds):
        return UNKNOWN
    if seconds < 59.5:
        return f"{plain.number(seconds, 1 if seconds < 9.95 else 0)} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes:,} min {rest} s"


def percent(fraction: float | None) -> str:
    """A fraction of one, such as '38 %'."""
    return plain.percent(fraction) if _known(fraction) else UNKNOWN


def percent_interval(interval: Interval | None) -> str:
    """A fraction of one with its interval, such as '38 % (36–40 %)'."""
    if interval is None or not _known(interval.estimate):
        return UNKNOWN
    return plain.percent_interval(interval) if _bounded(interval) else plain.percent(interval.estimate)


def gain_interval(interval: Interval | None) -> str:
    """A factor of throughput with its interval, such as '2.3x (2.2–2.4)'."""
    if interval is None or not _known(interval.estimate):
        return UNKNOWN
    return plain.gain_interval(interval) if _bounded(interval) else plain.gain(interval.estimate)


def count(amount: float | None) -> str:
    """A whole number with thousands separators."""
    return plain.number(amount) if _known(amount) else UNKNOWN


def frequency(amount: float | None) -> str:
    """How often for each sample, such as '1' or '0.44'."""
    if not _known(amount):
        return UNKNOWN
    return bare(round(amount, 2)) if 0.01 <= amount < 99.95 else plain.count(amount)


def size(size_bytes: float | None) -> str:
    """An amount of memory, such as '1.2 GiB'."""
    if not _known(size_bytes):
        return UNKNOWN
    value = float(size_bytes)
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while abs(value) >= 999.5 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{plain.number(value) if units[0] == 'bytes' else plain.significant(value)} {units[0]}"


def by_unit(key: str, value: object) -> str | None:
    """A number whose unit its key says (`_bytes`, `_s`), else as it is; None for what is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not abs(value) < LARGEST:
        return str(value)
    if key.endswith("_bytes"):
        return size(value)
    if key.endswith("_s"):
        return duration(value)
    return plain.number(value) if isinstance(value, int) else f"{value:g}"


def bare(number: float) -> str:
    """A number for a program to read: four significant digits, no separator, no exponent."""
    text = f"{float(f'{number:.4g}'):.6f}"
    return text.rstrip("0").rstrip(".")


def bar(fraction: float | None, width: int) -> str:
    """A bar of at most `width` block characters, in steps of an eighth; empty where nothing is known."""
    if width <= 0 or not _known(fraction):
        return ""
    eighths = round(min(1.0, max(0.0, fraction)) * width * 8)
    if eighths == 0 and fraction > 0:
        eighths = 1  # little is not nothing
    whole, rest = divmod(eighths, 8)
    return _FULL * whole + (_EIGHTHS[rest] if rest else "")


def _known(number: float | None) -> TypeGuard[float]:
    return number is not None and abs(number) < LARGEST


def _bounded(interval: Interval) -> bool:
    return abs(interval.low) < LARGEST and abs(interval.high) < LARGEST


def _time_unit(seconds: float) -> tuple[float, str]:
    if seconds >= 0.9995:
        return 1.0, "s"
    return (1e-3, "ms") if seconds >= 5e-5 or seconds == 0 else (1e-6, "µs")


def _time_decimals(value: float, unit: str) -> int:
    if abs(value) >= 99.95:
        return 0
    if unit == "s":
        return 1 if abs(value) >= 9.95 else 2
    return 1 if abs(value) >= 0.95 else 2


def _span(low: str, high: str) -> str:
    # The dash between two bounds reads as a minus sign in front of another one.
    return f"{low} to {high}" if "−" in low + high else f"{low}–{high}"
