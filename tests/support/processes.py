"""Processes of a command under test, told from those of the tests that run beside it."""

from __future__ import annotations

import os

import psutil


def left_in_session(session: int, patience_s: float = 5.0) -> list[psutil.Process]:
    """Return the processes of a session that have not ended after a wait; the session has the id of its first one.

    Only a command that was started with `start_new_session=True` has one that no other test is in.
    """
    processes = [process for process in psutil.process_iter() if _session_of(process.pid) == session]
    return psutil.wait_procs(processes, timeout=patience_s)[1]


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None
