"""A Chrome trace as Kineto, torch's profiler, writes it: what host and device did, and which caused which.

The events of a thread lie within each other as calls do. What the device does is linked to the call of the driver's
library that asked for it by a number, `correlation`; that call lies within the operator which made it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

_MICROSECOND = 1e-6
_KINDS = {
    "cpu_op": "operator",
    "user_annotation": "annotation",
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "xpu_runtime", "privateuse1_runtime"), "driver"),
}
"""Of calls, by their category in the trace."""
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


@dataclass(eq=False)
class Call:
    """An operator, an annotation or a call of the driver's library, on a thread of the host."""

    name: str
    """Such as `aten::mm` or `cudaLaunchKernel`."""
    kind: str
    """'operator', 'annotation' or 'driver'."""
    start_s: float
    """By the clock of the trace, as all times here."""
    end_s: float
    arguments: Mapping[str, Any]
    parent: Call | None = None
    """The innermost operator or annotation that it lies within."""
    within_s: float = 0.0
    """Time of the operators and annotations directly within it."""
    leaf: bool = True
    """No operator lies within it."""

    @property
    def own_s(self) -> float:
        """Its time without what lies within it."""
        return max(0.0, self.end_s - self.start_s - self.within_s)

    @property
    def around(self) -> Iterator[Call]:
        """What it lies within, from the inside out."""
        outer = self.parent
        while outer is not None:
            yield outer
            outer = outer.parent


@dataclass(frozen=True)
class DeviceWork:
    """A kernel, a copy or a fill, on the device."""

    name: str
    """Of the kernel, or what is copied: `Memcpy HtoD (Pageable -> Device)`."""
    kind: str
    """One of `_ON_DEVICE`."""
    start_s: float
    end_s: float
    device: int
    """Its number."""
    cause: Call | None
    """The call of the driver's library that asked for it; None where that is unknown."""
    size_bytes: int = 0
    """Of a copy; 0 where that is unknown."""

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Trace:
    """The events within some time."""

    calls: tuple[Call, ...]
    work: tuple[DeviceWork, ...] = ()
    """In the order of time."""

    def within(self, start_s: float, end_s: float) -> Trace:
        """The part of it that began in some time."""
        return Trace(
            tuple(call for call in self.calls if start_s <= call.start_s < end_s),
            tuple(work for work in self.work if start_s <= work.start_s < end_s),
        )

    def of_kind(self, kind: str) -> Iterator[Call]:
        return (call for call in self.calls if call.kind == kind)

    @cached_property
    def kernels(self) -> tuple[DeviceWork, ...]:
        """What computes on the device."""
        return tuple(work for work in self.work if work.kind == "kernel")

    def idle_after_s(self, after_s: float) -> float:
        """How long the device does nothing between a time and its next work; 0 when it does no more."""
        number = bisect_left(self._starts_s, after_s)
        if number == len(self._starts_s):
            return 0.0
        still_busy_until_s = self._reached_s[number - 1] if number else after_s
        return max(0.0, self._starts_s[number] - max(after_s, still_busy_until_s))

    @cached_property
    def _starts_s(self) -> tuple[float, ...]:
        return tuple(work.start_s for work in self.work)

    @cached_property
    def _reached_s(self) -> tuple[float, ...]:
        """When all work up to each one has ended."""
        return tuple(accumulate((work.end_s for work in self.work), max))


def read_trace(document: Mapping[str, Any]) -> Trace:
    """Read what `export_chrome_trace` wrote, parsed from JSON.

    Args:
        document: With `traceEvents`; times there are microseconds.
    """
    threads: dict[tuple[Any, Any], list[Call]] = {}
    on_device: list[tuple[str, float, float, Mapping[str, Any], str]] = []
    for event in document.get("traceEvents", ()):
        times = _times(event)
        if times is None:
            continue
        category, name, arguments = event.get("cat"), str(event.get("name", "")), event.get("args") or {}
        kind = _KINDS.get(category)
        if kind is not None:
            threads.setdefault((event.get("pid"), event.get("tid")), []).append(Call(name, kind, *times, arguments))
        elif category in _ON_DEVICE:
            on_device.append((name, *times, arguments, category))
    for thread in threads.values():
        _nest(thread)
    calls = tuple(call for thread in threads.values() for call in thread)
    causes = {call.arguments.get("correlation"): call for call in calls if call.kind == "driver"}
    causes.pop(None, None)
    work = [
        DeviceWork(
            name, kind, start_s, end_s, _number(arguments.get("device")), causes.get(arguments.get("correlation")),
            _number(arguments.get("bytes")),
        )
        for name, start_s, end_s, arguments, kind in on_device
    ]  # fmt: skip
    return Trace(calls, tuple(sorted(work, key=lambda item: item.start_s)))


def _times(event: Any) -> tuple[float, float] | None:
    if not isinstance(event, Mapping) or event.get("ph") != "X":
        return None
    start, duration = event.get("ts"), event.get("dur")
    if not isinstance(start, (int, float)) or not isinstance(duration, (int, float)):
        return None
    return start * _MICROSECOND, (start + duration) * _MICROSECOND


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _nest(calls: list[Call]) -> None:
    """Find what each call of a thread lies within."""
    calls.sort(key=lambda call: (call.start_s, -call.end_s))
    open_calls: list[Call] = []
    for call in calls:
        # Half of what lies within is enough: the ends of two that end together may differ in the last digit.
        while open_calls and open_calls[-1].end_s < (call.start_s + call.end_s) / 2:
            open_calls.pop()
        if open_calls:
            call.parent = open_calls[-1]
            if call.kind != "driver":
                call.parent.within_s += call.end_s - call.start_s
            if call.kind == "operator":
                for outer in call.around:
                    if not outer.leaf:
                        break
                    outer.leaf = False
        if call.kind != "driver":
            open_calls.append(call)


def busy_s(work: tuple[DeviceWork, ...], start_s: float, end_s: float) -> float:
    """Seconds in which a device does any of some work; with several devices, their mean.

    Args:
        work: In the order of time.
        start_s: What lies before is cut off.
        end_s: What lies after is cut off.
    """
    devices: dict[int, list[DeviceWork]] = {}
    for item in work:
        devices.setdefault(item.device, []).append(item)
    if not devices:
        return 0.0
    return sum(_union_s(items, start_s, end_s) for items in devices.values()) / len(devices)


def _union_s(work: list[DeviceWork], start_s: float, end_s: float) -> float:
    total_s, reached_s = 0.0, start_s
    for item in work:
        until_s = min(item.end_s, end_s)
        total_s += max(0.0, until_s - max(item.start_s, reached_s))
        reached_s = max(reached_s, until_s)
    return total_s
