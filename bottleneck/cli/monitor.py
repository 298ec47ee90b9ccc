"""`bottleneck monitor`, which watches the whole run of a script."""

from __future__ import annotations

import atexit
import contextlib
import signal
import sys
import threading
from pathlib import Path

import click

from bottleneck.cli.main import end_in_order
from bottleneck.cli.measure import require_torch
from bottleneck.cli.options import Command, traceback_option
from bottleneck.cli.output import check_writable, say
from bottleneck.errors import ExitStatus, UsageError
from bottleneck.job.users_code import STARTS_SCRIPTS, is_ours
from bottleneck.measure.keep.interrupts import REQUESTS
from bottleneck.script.launch import Script, wait_for_threads


@click.command(
    "monitor",
    context_settings={"allow_interspersed_args": False},
    epilog="Options of bottleneck come before SCRIPT; what follows belongs to the script. Exit status: the script's.",
    cls=Command,
)
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is a module, as after python -m.")
@click.option(
    "--out",
    metavar="FILE",
    default="events.jsonl",
    show_default=True,
    help="Append events to this file, one JSON object per line.",
)
@traceback_option
@click.argument("arguments", metavar="SCRIPT [ARGS]...", nargs=-1, type=click.UNPROCESSED)
def monitor_command(is_module: bool, out: str, arguments: tuple[str, ...]) -> int:
    """Watch the whole run of a training script, without changing it.

    SCRIPT runs to its end, as Python would run it. Events are appended to a file, which `bottleneck report` can read
    at any time. The final report goes to standard error.
    """
    if not arguments:
        raise UsageError("No script is given.", "Write bottleneck monitor path/to/train.py ARGS.")
    script = Script(arguments[0], arguments[1:], is_module)
    script.check()
    check_writable(out)
    require_torch()
    from bottleneck.monitor.monitoring import Monitor

    _end_as_without_us()
    threads = threading.enumerate()
    command = [*(["-m"] if is_module else []), *arguments]
    with Monitor(out, say, command) as monitor:
        status = _run(script)
        wait_for_threads(threads)
    with contextlib.suppress(Exception):  # the job's own end counts
        _report(monitor.path)
    atexit._run_exitfuncs()  # the script's, which would not run in one of several ranks
    return status


def _run(script: Script) -> int:
    """Run a script to its end, and return the exit status that Python would have."""
    try:
        script.run()
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return int(error.code or 0)
        say(str(error.code))
        return 1
    except BaseException as error:  # noqa: BLE001 - it ends the script, as it would without monitoring
        trace = error.__traceback__
        while trace is not None and (is_ours(file := trace.tb_frame.f_code.co_filename) or file == STARTS_SCRIPTS):
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)  # which may be the script's own
        return ExitStatus.INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return ExitStatus.OK


def _end_as_without_us() -> None:
    """Let a request to end the process end it at once, as Python does: the file lacks only the last second."""
    for number in REQUESTS:
        if getattr(signal.getsignal(number), "__module__", "") == end_in_order.__module__:
            signal.signal(number, signal.SIG_DFL)


def _report(path: Path) -> None:
    from bottleneck.monitor.file import read_events
    from bottleneck.reports.render import render

    say(f"\n{render(read_events(path), 'text')}")
    say(f"Wrote {path}")
