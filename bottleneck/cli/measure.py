"""The commands that measure: `run`, `diagnose` and `demo`.

If the job fails, no measurement is lost, and the job cannot write to standard output. Torch is imported after all
options have been checked.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import multiprocessing.util
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from multiprocessing.synchronize import SemLock
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from bottleneck.analysis.edits.next_steps import with_next
from bottleneck.analysis.settings import with_price
from bottleneck.cli.main import exit_status_of, flushed, interruption_in, leave
from bottleneck.cli.options import (
    Command,
    Request,
    as_seconds,
    measuring_options,
    script_options,
    traceback_is_asked_for,
    traceback_option,
)
from bottleneck.cli.output import open_progress, plan_outputs, say, standard_output_kept, write_outputs
from bottleneck.errors import ExitStatus, MeasurementError, UsageError
from bottleneck.job.target import build_pipeline, check_target, parse_settings
from bottleneck.job.users_code import said_by, started_here
from bottleneck.measure.options import MeasureOptions, ProgressCallback
from bottleneck.results.files import read_source
from bottleneck.results.records import Result
from bottleneck.results.tuning import TuningResult
from bottleneck.script.launch import Ends, Script, wait_for_threads

if TYPE_CHECKING:
    from bottleneck.api import Attempt
    from bottleneck.job.pipeline import Pipeline
    from bottleneck.results.watched import WatchedResult
    from bottleneck.script.measuring import Measuring
    from bottleneck.script.starting import StartUp

AnyAttempt = TypeVar("AnyAttempt")
AnyFound = TypeVar("AnyFound", bound=Result | TuningResult)


def source_of(target: str) -> dict[str, str]:
    """Return the source of a run, to distinguish it from others: its target, and the working directory's commit.

    A plus sign means that files differ from the commit; outside of git there is no commit.
    """
    commit = _git("rev-parse", "--short", "HEAD")
    if not commit:
        return {"target": target}
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return {"target": target, "commit": f"{commit}+" if changed else commit}


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ("git", *arguments), capture_output=True, text=True, timeout=5, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def with_source(found: AnyFound, source: Mapping[str, str]) -> AnyFound:
    """Return the result with its source."""
    return replace(found, pipeline={**found.pipeline, **source})


def require_torch() -> float:
    """Import torch, and return the duration of the import [s].

    Raises:
        MeasurementError: Torch is missing or does not work.
    """
    try:
        began_s = time.perf_counter()
        import torch  # noqa: F401 - checks only that it can be imported

        return time.perf_counter() - began_s
    except (ImportError, OSError) as error:
        raise MeasurementError(
            f"PyTorch cannot be imported: {said_by(error).rstrip('.')}.",
            "Install it: pip install torch torchvision. `bottleneck doctor` shows details.",
        ) from error


def _measure(build: Callable[[], Pipeline], options: MeasureOptions) -> Attempt:
    """Build a job and diagnose it, without restoring its state, because the process ends afterwards."""
    require_torch()
    from bottleneck.api import attempt_diagnosis

    return measure_described(build, partial(attempt_diagnosis, options=replace(options, restore=False)))


def measure_described(build: Callable[[], Pipeline], attempt: Callable[..., AnyAttempt]) -> AnyAttempt:
    """Build a job, and diagnose or tune it."""
    with started_here(), standard_output_kept():
        pipeline = build()
        with open_progress() as progress:
            return attempt(pipeline, progress=progress)


def _answer(request: Request, attempt: Attempt, source: Mapping[str, str], again: tuple[str, ...] = ()) -> int:
    """Write the reports, judge the gate, and return the exit status.

    Args:
        request: Outputs and gate.
        attempt: The diagnosis.
        source: Source of the diagnosis.
        again: The command that repeats it.

    Raises:
        MeasurementError: The job failed; the results so far have been written.
        KeyboardInterrupt: The diagnosis was interrupted; likewise.
        UsageError: A file cannot be written.
    """
    diagnosis = with_next(with_source(attempt.diagnosis, source), again, read_source)
    if request.gpu_hour_price is not None:
        diagnosis = with_price(diagnosis, request.gpu_hour_price)
    rates = [rate for e in diagnosis.experiments for rate in (e.coupled, e.drained)]
    measured = attempt.failure is None or any(rate is not None and rate.blocks for rate in rates)
    try:
        if attempt.leads and measured:
            write_outputs(diagnosis, request.outputs, verbose=request.verbose)
            for path in attempt.write_files(request.flamegraph, request.trace):
                say(f"Wrote {path}")
    finally:
        if attempt.failure is not None:
            raise attempt.failure
    return _gate(diagnosis, request.fail_under) if attempt.leads and request.fail_under is not None else ExitStatus.OK


def _gate(result: Result, fail_under: float) -> int:
    """Return the exit status of `--fail-under`, and report a failure on standard error."""
    efficiency = result.verdict.judged
    if efficiency is None:
        say(f"The gate of {100 * fail_under:g} % cannot be judged: the efficiency is unknown.")
        return ExitStatus.OK
    if efficiency.high >= fail_under:
        return ExitStatus.OK
    over = " over a whole epoch" if result.verdict.judged_by == "epoch_efficiency" else ""
    say(
        f"Gate failed: the efficiency{over} is {100 * efficiency.estimate:.1f} % and at most "
        f"{100 * efficiency.high:.1f} %, below the {100 * fail_under:g} % required by --fail-under."
    )
    return ExitStatus.GATE_FAILED


@click.command(
    "diagnose",
    cls=Command,
    epilog="With '-' for FILE, standard output contains that file and nothing else.",
)
@click.argument("target")
@click.option(
    "--set", "settings", metavar="KEY=VALUE", multiple=True, help="Change a field of the pipeline; may be repeated."
)
@click.option("--device", metavar="DEVICE", help="Train on this device: cpu, cuda:1.")
@measuring_options
def diagnose_command(target: str, settings: tuple[str, ...], device: str | None, **asked: Any) -> int:
    """Find the bottleneck of a training job that a function describes.

    TARGET is path/to/file.py:function or package.module:function. The function takes no arguments and returns a
    bottleneck.Pipeline.
    """
    check_target(target)
    changes = parse_settings(settings)
    if device is not None:
        changes["device"] = device
    request, source = Request.of(target.rpartition(":")[0], asked), source_of(target)

    def build() -> Pipeline:
        from bottleneck.job.step import resolve_device

        pipeline = build_pipeline(target)
        if device is not None:
            resolve_device(device, "--device {}")  # for messages in terms of the command line
        return pipeline.replace(**changes) if changes else pipeline

    given = [word for text in settings for word in ("--set", text)] + ([] if device is None else ["--device", device])
    again = ("bottleneck", "diagnose", target, *given)
    return _answer(request, _measure(build, request.options), source, again)


@click.command(
    "run",
    context_settings={"allow_interspersed_args": False},
    epilog="Options of bottleneck come before SCRIPT; what follows belongs to the script.",
    cls=Command,
)
@script_options
@measuring_options
@click.argument("arguments", metavar="SCRIPT [ARGS]...", nargs=-1, type=click.UNPROCESSED)
def run_command(
    is_module: bool,
    loader: str | None,
    skip_steps: int | None,
    step_timeout: float,
    arguments: tuple[str, ...],
    **asked: Any,
) -> int:
    """Find the bottleneck of a training script, without changing it.

    SCRIPT runs with its own arguments, as Python would run it, until the measurement is done. Then it is stopped:
    code after the training loop does not run.
    """
    if not arguments:
        raise UsageError("No script is given.", "Write bottleneck run path/to/train.py ARGS.")
    script = Script(arguments[0], arguments[1:], is_module)
    script.check()
    request, source = Request.of(script.name, asked), source_of(script.name)
    again = ("bottleneck", "run", *(["-m"] if is_module else []), *arguments)
    imported_s = require_torch()
    from bottleneck.script.diagnosing import Diagnosing
    from bottleneck.script.starting import StartUp

    options = replace(request.options, restore=False)
    return measure_script(
        script,
        lambda finish, progress: Diagnosing(options, finish, progress, skip_steps, loader),
        lambda attempt: _answer(request, attempt, source, again),
        step_timeout,
        lambda found, why: _answer_watched(request, found, why),
        lambda: StartUp(imported_s),
    )


def _answer_watched(request: Request, found: WatchedResult, why: BaseException) -> int:
    """Write the reports on a script that was only watched, and return the exit status.

    Args:
        request: Outputs and gate.
        found: Verdict from watching.
        why: Reason why it could not be measured.
    """
    say(f"{why.message if isinstance(why, MeasurementError) else why} So it was watched.")
    write_outputs(found, request.outputs, verbose=request.verbose)
    if request.fail_under is not None:
        say(f"The gate of {100 * request.fail_under:g} % cannot be judged: the efficiency is unknown.")
    return ExitStatus.OK


def measure_script(
    script: Script,
    begin: Callable[[Callable[[Callable[[], AnyAttempt]], NoReturn], ProgressCallback | None], Measuring[AnyAttempt]],
    answer: Callable[[AnyAttempt], int],
    step_timeout: float,
    answer_watched: Callable[[WatchedResult, BaseException], int] | None = None,
    start_up: Callable[[], StartUp] | None = None,
) -> int:
    """Run a script until its loop is measured, then end the process; return if the script ends itself.

    Args:
        script: The script.
        begin: Starts measuring, given functions to call at the end and between blocks.
        answer: Reports, and returns the exit status.
        step_timeout: Maximum time for the loop's work on a batch [s].
        answer_watched: Reports on a loop that could only be watched, and returns the exit status, given the verdict
            and the reason why it cannot be measured. None: no loop is watched.
        start_up: Makes an observer of the script's start; None: not needed.
    """
    show_traceback = traceback_is_asked_for()
    with contextlib.ExitStack() as ours:
        ours.enter_context(started_here())
        ours.enter_context(standard_output_kept())
        ours.enter_context(contextlib.redirect_stderr(sys.stderr))  # some scripts replace it by a logger
        progress = ours.enter_context(open_progress())

        def end_with(status_of: Callable[[], int]) -> NoReturn:
            # From here no code of the script runs: its model was trained on the same few batches again and again.
            ours.close()
            try:
                status = status_of()
            except BaseException as error:  # noqa: BLE001 - none of our exceptions may reach the script
                status = exit_status_of(error, show_traceback=show_traceback)
            _end_process(status)

        def finish(outcome: Callable[[], AnyAttempt]) -> NoReturn:
            end_with(lambda: answer(outcome()))

        def end_watched(found: WatchedResult, why: BaseException) -> NoReturn:
            from bottleneck.script.inside import end_children

            assert answer_watched is not None
            end_children()
            end_with(partial(answer_watched, found, why))

        measuring = begin(finish, progress)
        threads = threading.enumerate()
        notice = measuring.notice(say, None if answer_watched is None else end_watched)
        with measuring, notice, Ends(measuring.leave, measuring.lent_s, step_timeout):
            ended: BaseException | None = None
            if start_up is not None:
                measuring.begin_with(start_up())
            try:
                script.run()
            except BaseException as error:  # noqa: BLE001 - it is reported, with what was measured
                ended = error if isinstance(error, SystemExit) else interruption_in(error)
                if isinstance(error, SystemExit) and error.code is not None and not isinstance(error.code, int):
                    say(str(error.code))  # as Python does for `sys.exit("no --data given")`
                if isinstance(ended, KeyboardInterrupt):
                    say("")  # ends the line of a progress bar
            if measuring.is_abandoned:
                measuring.leave(ended or SystemExit())
            wait_for_threads(threads)
            attempt = measuring.end(ended)
    return answer(attempt)


def _end_process(status: int) -> NoReturn:
    """End the process after only the necessary clean-up: idle workers end, and remove their files in /tmp."""
    from bottleneck.job.torch_loading import BaseIterator, shut_down

    for found in gc.get_objects():
        # type() and not isinstance(): lazy proxies answer isinstance() by loading their object.
        kind = type(found)
        with contextlib.suppress(Exception):  # an error can no longer be reported
            if issubclass(kind, tempfile.TemporaryDirectory) and getattr(found, "_delete", True):
                found.cleanup()
            elif issubclass(kind, BaseIterator):
                shut_down(found)
    for child in multiprocessing.active_children():
        child.terminate()
    # Semaphores of spawned processes: Python's resource tracker would report them as leaked.
    for finalizer in list(multiprocessing.util._finalizer_registry.values()):  # type: ignore[attr-defined]
        if finalizer._callback is SemLock._cleanup:  # type: ignore[attr-defined]
            finalizer()
    leave(flushed(status))


_DEMO_NAMES = "{}, numbered if it exists"


def _untaken(name: str, end: str) -> str:
    """Return the name of a file that does not exist, such as `report.md` or `report-2.md`."""
    numbered = (f"{name}{end}" if number == 1 else f"{name}-{number}{end}" for number in itertools.count(1))
    return next(path for path in numbered if not os.path.lexists(path))


@click.command("demo", cls=Command)
@click.option(
    "--budget", callback=as_seconds, metavar="TIME", default="26s", show_default=True, help="Maximum duration."
)
@click.option(
    "--images",
    type=click.IntRange(min=32),
    metavar="N",
    default=300,
    show_default=True,
    help="Number of photographs.",
)
@click.option("--report", metavar="FILE", help=f"Report in markdown.  [default: {_DEMO_NAMES.format('report.md')}]")
@click.option("--html", metavar="FILE", help=f"Report as a web page.  [default: {_DEMO_NAMES.format('report.html')}]")
@traceback_option
def demo_command(budget: float, images: int, report: str | None, html: str | None) -> int:
    """Diagnose a small job on synthetic photographs.

    The job reads JPEG files with torchvision's ImageFolder and the usual augmentation. The files are made once, in the
    cache folder. It needs no download and no GPU.
    """
    outputs = {"markdown": report or _untaken("report", ".md"), "html": html or _untaken("report", ".html")}
    request = Request(MeasureOptions(budget_s=budget), plan_outputs(outputs))
    require_torch()
    from bottleneck.demo import WIDTH, build_demo, ensure_photographs, require_torchvision, without_disturbances

    require_torchvision()
    with click.progressbar(length=images, label="Making photographs", file=sys.stderr) as bar:
        folder = ensure_photographs(images, width=WIDTH, on_progress=lambda done, _total: bar.update(done - bar.pos))
        bar.update(images - bar.pos)  # they existed already
    attempt = _measure(lambda: build_demo(folder), request.options)
    _answer(request, replace(attempt, diagnosis=without_disturbances(attempt.diagnosis)), {})
    say(
        "\nNext, your own training script:\n  bottleneck run train.py\n"
        "or a function that returns bottleneck.Pipeline(dataset=..., model=..., ...):\n"
        "  bottleneck diagnose myjob.py:build"
    )
    return ExitStatus.OK
