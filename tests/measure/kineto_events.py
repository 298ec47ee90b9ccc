"""Chrome traces as Kineto writes them, made by hand: times in microseconds, from the begin of the window."""

from __future__ import annotations

from itertools import count

from bottleneck.measure.passes.trace_summary import STEP, WINDOW

HOST, BACKWARD, DEVICE = (1, 1), (1, 2), (0, 7)


class Events:
    """Gathers the events of a trace; a launch and its kernel get a correlation of their own."""

    def __init__(self, length=10_000, steps=2):
        self.events = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}]
        self._correlations = count(1)
        self.add("user_annotation", WINDOW, 0, length)
        self._steps = steps

    def add(self, category, name, start, duration, thread=HOST, **arguments):
        pid, tid = thread
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": 1e9 + start, "dur": duration,
             "args": arguments}
        )  # fmt: skip
        return self

    def steps(self, *starts_and_durations):
        for number, (start, duration) in enumerate(starts_and_durations):
            self.add("user_annotation", f"{STEP}{number}", start, duration)
        return self

    def operator(self, name, start, duration, thread=HOST, **arguments):
        return self.add("cpu_op", name, start, duration, thread, **arguments)

    def annotation(self, name, start, duration):
        return self.add("user_annotation", name, start, duration)

    def driver(self, name, start, duration, thread=HOST, **arguments):
        return self.add("cuda_runtime", name, start, duration, thread, **arguments)

    def kernel(self, name, start, duration, *, launched=None, by="cudaLaunchKernel", thread=HOST, device=0):
        number = next(self._correlations)
        if launched is not None:
            self.driver(by, launched, 3, thread, correlation=number)
        return self.add("kernel", name, start, duration, (device, 7), device=device, stream=7, correlation=number)

    def copy(self, name, start, duration, *, launched, size_bytes, called_for=3):
        number = next(self._correlations)
        self.driver("cudaMemcpyAsync", launched, called_for, correlation=number)
        return self.add("gpu_memcpy", name, start, duration, DEVICE, device=0, correlation=number, bytes=size_bytes)

    def document(self):
        return {"schemaVersion": 1, "traceEvents": self.events, "displayTimeUnit": "ms"}
