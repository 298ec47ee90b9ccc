"""Examinations of profiling: whether py-spy is there, and whether it may look into workers."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

from bottleneck._pydata.names import installed_version
from bottleneck.doctor.finding import Finding
from bottleneck.loader.worker import ptrace
from bottleneck.measure.passes.pyspy import find_py_spy, remedy_for_permission, why_py_spy_fails

TRY_LIMIT_S = 10.0
_SYS_PTRACE = 1 << 19
"""CAP_SYS_PTRACE among the bits of CapEff."""
# With Yama's scope 1 only those that a process allows may look into it; workers do the same.
_CHILD = (
    "import runpy, sys\nrunpy.run_path(sys.argv[1])['allow_tracing']()\nprint('ready', flush=True)\nsys.stdin.read()\n"
)


def examine_py_spy(limit_s: float = TRY_LIMIT_S) -> Finding:
    """Whether py-spy is there, beside this Python or on the path, and can look into another process.

    Args:
        limit_s: How long it may take to.
    """
    program = find_py_spy()
    if program is None:
        return Finding("warning", "py-spy", "not found: no profiles of the workers", "pip install py-spy")
    version = installed_version("py-spy") or "found on the path"
    failure = _try(program, limit_s)
    if failure:
        return Finding(
            "warning",
            "py-spy",
            f"{version}, but {failure}",
            "Without it, profiles come from a sampler inside the workers, which sees less.",
        )
    return Finding("ok", "py-spy", f"{version}, sees into a child process")


def _try(program: str, limit_s: float) -> str:
    # -S: started at once, without what the environment adds at every start.
    command = [sys.executable, "-S", "-c", _CHILD, str(ptrace.__file__)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        try:
            if child.stdout is None or child.stdout.readline().strip() != b"ready":
                return "a child process to try it on did not start"
            return why_py_spy_fails(program, child.pid, limit_s)
        finally:
            child.kill()


def examine_ptrace(root: Path = Path("/"), system: str | None = None) -> Finding:
    """Whether the system's rules let py-spy look into the workers.

    Args:
        root: Where the system's files are.
        system: Its name as `platform.system` gives it; None: this one.
    """
    if (system or platform.system()) == "Darwin":
        return Finding("warning", "ptrace", "macOS lets only root look into processes", "run --flamegraph with sudo")
    status = _status(root / "proc/self/status")
    capable = _may_trace(status)
    note = "; a seccomp filter is active (a container)" if status.get("Seccomp") == "2" and not capable else ""
    try:
        scope = (root / "proc/sys/kernel/yama/ptrace_scope").read_text().strip()
    except OSError:
        scope = ""
    if scope in ("", "0") or (scope in ("1", "2") and capable):
        return Finding("ok", "ptrace", f"processes of this user may be profiled{note}")
    if scope == "1":
        return Finding("ok", "ptrace", f"scope 1: workers may be profiled after they allow it themselves{note}")
    remedy = remedy_for_permission("Linux", root / "proc/sys/kernel/yama/ptrace_scope", root)
    return Finding("warning", "ptrace", f"scope {scope}: workers cannot be profiled from outside{note}", remedy)


def _status(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _may_trace(status: dict[str, str]) -> bool:
    try:
        return bool(int(status["CapEff"], 16) & _SYS_PTRACE)
    except (KeyError, ValueError):
        return hasattr(os, "geteuid") and os.geteuid() == 0
