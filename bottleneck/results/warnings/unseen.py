"""Warnings of facts that could not be seen, and of things that could not be left as they were found."""

from __future__ import annotations

from collections.abc import Sequence

from bottleneck.results.format import names, plural, size
from bottleneck.results.records import Warning

# --- not seen -----------------------------------------------------------------------------------------------


def reads_not_seen() -> Warning:
    """Warn of a system without counters of bytes read."""
    return Warning(
        "reads-not-seen",
        "This system does not report how many bytes a process reads, so it is unknown where the data comes from, "
        "and whether more of it is read than kept.",
    )


def core_waits_not_seen() -> Warning:
    """Warn of a system without the time that a thread waits for a core."""
    return Warning(
        "core-waits-not-seen",
        "This system does not report how long a thread waits for a core: workers that lack cores may look slow.",
    )


def lines_not_seen() -> Warning:
    """Warn of a Python without a GIL, whose stacks are not sampled."""
    return Warning(
        "lines-not-seen",
        "This Python runs without a GIL, so stacks cannot be sampled safely, and no line of code is named. Run the "
        "job once with PYTHON_GIL=1 to see lines.",
    )


def not_observed(why: str) -> Warning:
    """Warn that a worker died while it was observed; `why` is a sentence."""
    return Warning(
        "not-observed",
        f"{why} The workers were restarted and continue without that pass, so nothing is known "
        "about single lines and transforms, or about the reads of a sample.",
    )


def cold_left_out() -> Warning:
    """Warn that cold files are not measured on many ranks."""
    return Warning(
        "cold-left-out",
        "Cold files were not measured: in a job of many ranks, one rank would drop the files of all. Diagnose a "
        "single process for that.",
    )


# --- profiles and traces ------------------------------------------------------------------------------------


def profile_failed(error: str) -> Warning:
    """Warn that there is no profile, because of an error such as 'OSError: no space left'."""
    return Warning("profile-failed", f"There is no profile ({error}).")


def py_spy_missing() -> Warning:
    """Warn that py-spy is not installed."""
    return Warning("profile-failed", "py-spy is not installed; pip install py-spy.")


def py_spy_failed(why: str, workers: Sequence[int], *, only_flamegraph: bool) -> Warning:
    """Warn that py-spy recorded nothing.

    Args:
        why: Its reason.
        workers: The workers of which it recorded nothing; none if it recorded nothing at all.
        only_flamegraph: True if just the flamegraph is missing.
    """
    what = "no flamegraph" if only_flamegraph else "nothing"
    of = f" of worker {', '.join(map(str, workers))}" if workers else ""
    return Warning("profile-failed", f"py-spy returned {what}{of}: {why}.")


def profile_some_workers(workers: int) -> Warning:
    """Warn that only some workers were profiled."""
    return Warning("profile-some-workers", f"Only the first {workers} workers were profiled.")


def profile_empty() -> Warning:
    """Warn of a profile without the user's code."""
    return Warning("profile-empty", "The profile is empty: no sample was in the code of the dataset.")


def trace_failed(experiment: str, why: str) -> Warning:
    """Warn that there is no trace of an experiment; `why` is the end of a sentence."""
    return Warning("trace-failed", f"There is no trace of {experiment}: {why}.")


def trace_left_out() -> Warning:
    """Warn that no traces are made on many ranks."""
    return Warning("trace-left-out", "There are no traces: in a job of many ranks, no rank trains alone.")


def trace_without_device(experiment: str) -> Warning:
    """Warn of a trace without work of the device."""
    return Warning(
        "trace-without-device",
        f"The trace of {experiment} shows no work of the device. Another profiler (nsys, ncu) may be using it, or the "
        "driver reserves its counters for administrators (ERR_NVGPUCTRPERM).",
    )


# --- not left as found --------------------------------------------------------------------------------------


def not_restored(what: str, more: int, error: str) -> Warning:
    """Warn of state that refused to be restored.

    Args:
        what: Its name, such as 'the weight'.
        more: Number of other things that failed in the same way.
        error: The error, such as 'OSError: no'.
    """
    return Warning("not-restored", f"{_and_more(what, more)} could not be restored ({error}).")


def not_copied(what: str, more: int, error: str) -> Warning:
    """Warn of state that refused to be copied. Args: as above."""
    return Warning(
        "not-restored",
        f"{_and_more(what, more)} could not be copied, and so was not restored after the diagnosis ({error}).",
    )


def _and_more(what: str, more: int) -> str:
    return f"{what} and {more} more like it" if more else what


def not_searched(what: str, error: BaseException) -> Warning:
    """Warn of an object that raised while it was searched for state."""
    return Warning("not-restored", f"{what} could not be searched, and so was not restored ({error!r:.200}).")


def not_searched_whole(what: str) -> Warning:
    """Warn of an object that holds too much."""
    return Warning(
        "not-restored",
        f"The search of {what} for state ended before it had seen everything; objects beyond that were not restored.",
    )


def generator_not_restored(what: str) -> Warning:
    """Warn of a generator that was used up."""
    return Warning("not-restored", f"{what} is a running generator: the values it yielded could not be restored.")


def weights_too_large(nbytes: int) -> Warning:
    """Warn of weights that there is no memory to copy."""
    return _weights_not_put_back(f"a copy of it takes {size(nbytes)} of memory, more than a quarter of the free memory")


def weights_not_writable(error: BaseException) -> Warning:
    """Warn of weights that cannot be copied or written."""
    return _weights_not_put_back(f"it cannot be written ({type(error).__name__})")


def weights_too_slow(seconds: float) -> Warning:
    """Warn of weights that take so long to restore."""
    return _weights_not_put_back(f"that takes {seconds:.2g} s, too long for a round")


def some_weights_not_put_back(kinds: Sequence[str]) -> Warning:
    """Warn of tensors of some kinds that cannot be restored."""
    return _weights_not_put_back(
        "they have no memory that can simply be copied",
        f"Of the weights and the state of the optimizer, tensors of some kinds ({', '.join(kinds)})",
        "Diagnose with a smaller learning rate.",
    )


def _weights_not_put_back(
    why: str,
    what: str = "The weights and the state of the optimizer",
    remedy: str = "Diagnose on a machine with more memory, or with a smaller learning rate.",
) -> Warning:
    return Warning(
        "weights-not-put-back",
        f"{what} were not restored at the beginning of each round: {why}. So the job trained on few batches for "
        f"the whole diagnosis, and a step whose time depends on the weights was not always the same. {remedy}",
    )


def saved_while_measured(files: Sequence[str], more: int) -> Warning:
    """Warn of a script that saved weights during its diagnosis.

    Args:
        files: Some of the files.
        more: Number of the others.
    """
    named = names(files) if more == 0 else f"{plural(len(files) + more, 'file')}, such as {names(files)}"
    return Warning(
        "saved-while-measured",
        f"While it was measured, the training saved {named}. These weights were trained on the same few batches "
        "again and again: do not resume from them.",
    )


def status_of_launcher(status: int) -> Warning:
    """Warn that torchrun hides the exit status of a rank."""
    return Warning(
        "status-of-launcher",
        f"torchrun ends with status 1, regardless of the status of its ranks. This rank's is {status}.",
    )
