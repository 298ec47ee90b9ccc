"""Looks at a target in a process of its own, which is ended with all that it started when it takes too long."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from bottleneck.doctor.finding import Finding
from bottleneck.doctor.job_checks.inspected import STEPS
from bottleneck.doctor.job_checks.traceback_place import find_place
from bottleneck.errors import ExitStatus

LIMIT_S = 120.0
_GRACE_S = 1.0
"""For the stacks to be written after the limit."""
_START_LIMIT_S = 120.0
_END_LIMIT_S = 5.0
"""For what the user's code does at the end of a process."""
# The same modules as here, whatever the interpreter would find by itself.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from bottleneck.doctor.job_checks.inspected import main; main()"
)
_LONGER = "--limit 10m allows more"
_REMEDIES = {
    "start": "The machine is very busy, or its disk very slow.",
    "build": f"Download and prepare data once before, or {_LONGER}.",
    "pickle": f"Its __getstate__ or __reduce__ takes long; {_LONGER}.",
    "batch": f"If it waits for another process or a lock, that does not work in workers; {_LONGER}.",
    "sample": f"If it is only slow, {_LONGER}.",
    "end": "Something that the target started does not end with it.",
}


def examine_target(target: str, limit_s: float = LIMIT_S) -> list[Finding]:
    """All findings about a target: its description, its dataset's pickle, a first sample and batch.

    Args:
        target: 'package.module:function' or 'path/to/file.py:function'.
        limit_s: How long each step of it may take.
    """
    with tempfile.TemporaryDirectory(prefix="torch-bottleneck-") as folder:
        trace = Path(folder) / "trace.txt"
        inspection = _Inspection(target, trace, limit_s)
        try:
            return inspection.findings()
        finally:
            inspection.close()


class _Inspection:
    def __init__(self, target: str, trace: Path, limit_s: float) -> None:
        self._trace, self._limit_s = trace, limit_s
        command = [sys.executable, "-c", _PROGRAM, json.dumps(sys.path), target, str(trace), str(limit_s)]
        # Of a session of its own, so that all that it starts can be ended at once.
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
        )
        self._done = False
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        stream = self._process.stdout
        with suppress(ValueError, OSError):  # closed meanwhile
            for line in stream or ():
                self._lines.put(line.decode("utf-8", errors="replace"))
        self._lines.put(None)

    def findings(self) -> list[Finding]:
        """What the process reports, and what its silence means."""
        found: list[Finding] = []
        step = "start"
        for record in self._records():
            if record is None:
                return [*found, self._stuck(step)]
            if "finding" in record:
                fields = record["finding"]
                found.append(Finding(**{**fields, "exit_status": ExitStatus(fields["exit_status"])}))
            step = record.get("step", step)
            if record.get("done"):
                self._done = True
                return found
        return [*found, self._died(step)]

    def _records(self) -> Iterator[dict[str, Any] | None]:
        """Each record; None when the next one does not come in time."""
        limit_s = _START_LIMIT_S
        while True:
            try:
                line = self._lines.get(timeout=limit_s + _GRACE_S)
            except queue.Empty:
                yield None
                return
            if line is None:
                return
            yield json.loads(line)
            limit_s = self._limit_s

    def _stuck(self, step: str) -> Finding:
        place = None
        with suppress(OSError):
            place = find_place(self._trace.read_text(errors="replace"), innermost_first=True)
        where = f"; it stands at {place}" if place else ""
        return Finding(
            "problem",
            "target",
            f"{STEPS[step]} took longer than {_START_LIMIT_S if step == 'start' else self._limit_s:g} s{where}",
            _REMEDIES[step],
        )

    def _died(self, step: str) -> Finding:
        status = self._process.wait()
        how = f"with status {status}"
        if status < 0:
            with suppress(ValueError):
                how = f"by {signal.Signals(-status).name}"
        return Finding(
            "problem",
            "target",
            f"{STEPS[step]} ended the process {how}",
            "If the kernel's out-of-memory killer did it (see dmesg), something needs less memory; "
            "--set num_workers=0 with diagnose shows where it ends.",
        )

    def close(self) -> None:
        """End the process and all that it started, in sessions of their own too."""
        started: list[psutil.Process] = []
        with suppress(psutil.Error):
            started = psutil.Process(self._process.pid).children(recursive=True)
        if self._done:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_LIMIT_S)
        with suppress(OSError, AttributeError):  # none is left, or a system without groups of processes
            os.killpg(self._process.pid, signal.SIGKILL)
        for process in started:
            with suppress(psutil.Error):
                process.kill()
        self._process.kill()
        self._process.wait()
        self._reader.join(_END_LIMIT_S)  # on a busy machine it takes a while until killed processes are gone
        # A process that escaped may hold the other end: the reader then waits on, and closing would wait for it.
        if self._process.stdout is not None and not self._reader.is_alive():
            self._process.stdout.close()
