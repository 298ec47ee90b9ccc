"""The process in which a target is examined: the user's code may hang there or take the process with it.

It writes one JSON object a line: {"step", ...} before something that may take long, {"finding"} for what was found,
and {"done"} at the end.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from bottleneck.doctor.finding import Finding
from bottleneck.errors import BottleneckError

STEPS = {
    "start": "starting Python and torch",
    "build": "importing it and building its pipeline",
    "pickle": "pickling its dataset",
    "batch": "loading a first batch",
    "sample": "loading samples in the main process",
    "end": "ending",
}
"""What may take long, by name, in words that go on with 'took longer than'."""


class Reporter:
    """Reports to the process that waits.

    Args:
        channel: Where to.
        trace: A file for the stacks of all threads when a step has not ended in time.
        limit_s: How long a step may take.
    """

    def __init__(self, channel: TextIO, trace: TextIO, limit_s: float) -> None:
        self._channel, self._trace, self.limit_s = channel, trace, limit_s

    @property
    def trace_path(self) -> Path:
        """Of the file for the stacks, where workers may add theirs."""
        return Path(self._trace.name)

    def begin(self, step: str) -> None:
        self._write({"step": step})
        faulthandler.dump_traceback_later(self.limit_s, file=self._trace)

    def report(self, *findings: Finding) -> None:
        for finding in findings:
            self._write({"finding": dataclasses.asdict(finding)})

    def finish(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        self._write({"done": True})

    def _write(self, record: dict[str, Any]) -> None:
        print(json.dumps(record), file=self._channel, flush=True)


def inspect(target: str, reporter: Reporter) -> None:
    """Look at a target step by step, up to the first one that fails."""
    try:
        from bottleneck.doctor.job_checks import first_batch, job
        from bottleneck.job.target import build_pipeline
    except (ImportError, OSError) as error:  # torch itself, which has a finding of its own
        reporter.report(Finding("problem", "target", f"not examined: {error}"))
        return
    reporter.begin("build")
    try:
        pipeline = build_pipeline(target)
        reporter.report(*job.examine_description(pipeline))
    except BottleneckError as error:
        reporter.report(Finding("problem", "target", error.message, error.remedy, error.exit_status))
        return
    reporter.begin("pickle")
    pickled = job.examine_pickle(pipeline)
    reporter.report(pickled)
    if pickled.status == "problem":
        return
    # The worker comes first: samples taken here would open in this process what it then inherits.
    reporter.begin("batch")
    found, also_in_main = first_batch.examine_batch(pipeline.make_loader(), reporter.trace_path, reporter.limit_s)
    if not also_in_main:
        reporter.report(*found)
        return
    reporter.begin("sample")
    sample = job.examine_samples(pipeline)
    # The error in the main process names the index; that of the worker is the same one.
    both = sample.status == found[0].status == "problem"
    reporter.report(sample, *([] if both else found))


def main() -> None:
    """Look at the target that is named by the first argument."""
    target, trace_path, limit_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as channel, open(trace_path, "a", encoding="utf-8") as trace:
        with suppress(OSError):  # standard error is closed
            os.dup2(2, 1)  # what the user's code prints is no finding
        reporter = Reporter(channel, trace, limit_s)
        inspect(target, reporter)
        reporter.begin("end")
        reporter.finish()
