"""Runs of py-spy on some processes for a few seconds, ended in time no matter what it does."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

FileFormat = Literal["flamegraph", "speedscope"]
GRACE_S = 6.0
"""Seconds for starting, reading symbols and writing, beyond the sampling."""
_LAST_WORDS_S = 1.0
"""Seconds for py-spy to end after SIGINT, when it writes its samples."""
_FORBIDDEN = re.compile(r"permission denied|operation not permitted|EPERM|try running again with sudo", re.IGNORECASE)
_EMPTY = "No stack counts found"
"""Message of py-spy if it saw no thread compute."""


@dataclass(frozen=True)
class PySpyOptions:
    """Options of py-spy for sampling and output."""

    format: FileFormat
    seconds: int
    rate_hz: int
    native: bool = False
    """True to include frames of C and C++ code."""
    idle: bool = False
    """True to include threads that wait."""
    pauses: bool = True
    """True if the process is stopped for each sample; otherwise samples may be torn."""
    in_full: bool = False
    """True for lines instead of functions, with full paths, of all threads and child processes."""


@dataclass(frozen=True)
class PySpyOutput:
    """Output of py-spy for one process: the text of its file, or the reason why there is none."""

    text: str = ""
    failure: str = ""


def find_py_spy() -> str | None:
    """Return the path of py-spy, next to this Python or on the path; None if it is not installed."""
    installed = Path(sys.executable).parent / ("py-spy.exe" if os.name == "nt" else "py-spy")
    return str(installed) if installed.is_file() else shutil.which("py-spy")


class _Recording:
    """py-spy at work on some processes, with an empty folder for its files; other arguments as in `record`."""

    def __init__(
        self, program: str, pids: tuple[int, ...], options: PySpyOptions, folder: Path, grace_s: float
    ) -> None:
        self._options = options
        self._folder = folder
        self._pids = pids
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._failures: dict[int, str] = {}
        # The main process may wait for a batch that never comes, because a py-spy that hangs holds the worker.
        self._watchdog = threading.Timer(options.seconds + grace_s, self._end)
        self._watchdog.daemon = True
        for pid in pids:
            try:
                self._processes[pid] = self._start(program, pid)
            except OSError as error:
                self._failures[pid] = f"it cannot be started ({error.strerror or error})"
        self._watchdog.start()

    def _start(self, program: str, pid: int) -> subprocess.Popen[bytes]:
        options = self._options
        # The title of a flamegraph is this command: no paths.
        command = ["py-spy", "record", "--pid", str(pid), "--format", options.format]
        command += ["--threads", "--subprocesses", "--full-filenames"] if options.in_full else ["--function"]
        command += ["--rate", str(options.rate_hz), "--duration", str(options.seconds)]
        command += ["--output", f"{pid}.txt"]
        command += ["--native"] * options.native + ["--idle"] * options.idle + ["--nonblocking"] * (not options.pauses)
        with (self._folder / f"{pid}.log").open("wb") as log:
            # In a separate session, so that Ctrl-C reaches only this process, which ends py-spy.
            return subprocess.Popen(
                command,
                executable=os.path.abspath(program),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def done(self) -> bool:
        """True if it has ended on all processes."""
        return all(process.poll() is not None for process in self._processes.values())

    def close(self) -> dict[int, PySpyOutput]:
        """End it if necessary, and return the output."""
        self._watchdog.cancel()
        self._watchdog.join()
        self._end()
        return {pid: self._read(pid) for pid in self._pids}

    def _end(self) -> None:
        running = {pid: process for pid, process in self._processes.items() if process.poll() is None}
        for process in running.values():
            process.send_signal(signal.SIGINT)
        for pid, process in running.items():
            try:
                process.wait(_LAST_WORDS_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                self._failures[pid] = f"it did not end within {self._options.seconds} seconds of sampling and some more"
                # A py-spy that is killed while it holds a process sometimes leaves it stopped.
                with suppress(OSError, AttributeError):
                    os.kill(pid, signal.SIGCONT)

    def _read(self, pid: int) -> PySpyOutput:
        if pid in self._failures:
            return PySpyOutput(failure=self._failures[pid])
        status = self._processes[pid].returncode
        if status != 0:
            return PySpyOutput(failure=_explain((self._folder / f"{pid}.log").read_text(errors="replace"), status))
        try:
            return PySpyOutput((self._folder / f"{pid}.txt").read_text(errors="replace"))
        except OSError:
            return PySpyOutput(failure="it wrote nothing")


def why_py_spy_fails(program: str, pid: int, limit_s: float) -> str:
    """Try to read a process once; return the reason if that is impossible, or an empty text.

    Args:
        program: Path of py-spy.
        pid: The process.
        limit_s: Limit in seconds.
    """
    command = [program, "dump", "--pid", str(pid)]
    try:
        tried = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s, check=False, start_new_session=True
        )
    except subprocess.TimeoutExpired:
        return f"it did not look into a process within {limit_s:g} seconds"
    except OSError as error:
        return f"it cannot be started ({error.strerror or error})"
    if tried.returncode == 0:
        return ""
    return _explain((tried.stderr + tried.stdout).decode(errors="replace"), tried.returncode)


def _explain(log: str, status: int) -> str:
    if _FORBIDDEN.search(log):
        return f"it may not look into the process; {remedy_for_permission()}"
    if _EMPTY in log:
        return "no thread computed during the sampling; --idle includes those that wait"
    lines = [line.strip() for line in log.splitlines() if line.strip() and not line.startswith("py-spy>")]
    return f"it failed with status {status}" + (f" ({lines[0][:200]})" if lines else "")


def remedy_for_permission(
    system: str | None = None, scope_file: Path = Path("/proc/sys/kernel/yama/ptrace_scope"), root: Path = Path("/")
) -> str:
    """Return the way to allow py-spy to read other processes on this machine, as the end of a sentence."""
    if (system or platform.system()) == "Darwin":
        return "on macOS run the command with sudo"
    if (root / ".dockerenv").exists() or (root / "run/.containerenv").exists():
        return "start the container with --cap-add SYS_PTRACE"
    try:
        scope = scope_file.read_text().strip()
    except OSError:
        scope = ""
    if scope in ("1", "2"):
        return "allow it with `sudo sysctl kernel.yama.ptrace_scope=0`, or run the command as root"
    if scope == "3":
        return "kernel.yama.ptrace_scope is 3, which only a restart of the machine changes"
    return "it needs the capability SYS_PTRACE: in a container --cap-add SYS_PTRACE, else root"


def record(
    program: str,
    pids: tuple[int, ...],
    options: PySpyOptions,
    keep_busy: Callable[[], object],
    grace_s: float = GRACE_S,
) -> dict[int, PySpyOutput]:
    """Sample processes while something keeps them busy.

    Args:
        program: Path of py-spy.
        pids: The processes.
        options: Options for sampling.
        keep_busy: Called repeatedly until py-spy is done.
        grace_s: Seconds beyond the sampling after which it is ended.
    """
    with tempfile.TemporaryDirectory(prefix="torch-bottleneck-", ignore_cleanup_errors=True) as folder:
        recording = _Recording(program, pids, options, Path(folder), grace_s)
        try:
            while not recording.done:
                keep_busy()
        finally:
            found = recording.close()
        return found


def allow_tracing(*, allowed: bool = True) -> bool:
    """Let any process of the user read this one, if the kernel restricts that to ancestors (Yama, scope 1).

    `doctor` runs this in a separate process, without any other import of bottleneck.

    Returns:
        True if the kernel knows such a permission.
    """
    if sys.platform != "linux":
        return False
    set_ptracer, any_process, no_process = 0x59616D61, ctypes.c_ulong(-1), ctypes.c_ulong(0)
    try:
        to = any_process if allowed else no_process
        return bool(ctypes.CDLL(None).prctl(set_ptracer, to, no_process, no_process, no_process) == 0)
    except (OSError, AttributeError):  # a C library without it
        return False
