"""Explain errors while measuring in one sentence, with the user's own exception shown once."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch

from bottleneck.errors import BottleneckError, MeasurementError
from bottleneck.job.users_code import text_of, users_traceback
from bottleneck.loader import modes
from bottleneck.loader.processes import find_death
from bottleneck.loader.switched import LoaderEnded, SwitchedLoader
from bottleneck.loader.user_code import Failure, PassesThrough, find_failure
from bottleneck.results.format import cache_option

_ORIGINAL = "Original Traceback"
_PARTS = {"dataset": "The dataset", "collate_fn": "The collate function"}
NOT_THE_USERS = (BottleneckError, KeyboardInterrupt, GeneratorExit, PassesThrough)
"""Errors that need no explanation, or are caught elsewhere; all others come from the user's code."""
_SHM_REMEDY = (
    "Make /dev/shm larger (docker run --shm-size=8g), or use fewer workers, a smaller batch or a smaller "
    "prefetch_factor."
)
_FAILS_TOO = "The job itself would fail there as well; fix that, or leave it out."
PICKLE_REMEDY = (
    "Use functions at the top level of a module instead of lambdas, and open files and connections in __getitem__ "
    "instead of __init__; or let workers be forked: multiprocessing_context='fork'."
)
_NOT_PICKLED = re.compile(r"can(?:no|')t (?:pickle|get local object)", re.IGNORECASE)
_REMEDIES_OF_COLLATING = {
    "expects each tensor to be equal size": (
        "Samples of one batch differ in shape: resize them to one, or pass a collate_fn= that pads them."
    ),
    "NoneType": (
        "A sample probably is None, or holds None: return a sample for each index, or drop None in a collate_fn=."
    ),
}
"""Remedies by a part of the collate function's error message."""
_NO_HOST_MEMORY = re.compile(r"DefaultCPUAllocator: (?:can't allocate|not enough) memory")
_NO_MEMORY = re.compile(rf"out of memory|_ALLOC_FAILED|{_NO_HOST_MEMORY.pattern}", re.IGNORECASE)
_FEW_BYTES = 256 << 20
"""Bytes for caches if there is no room for more."""
_LABEL = re.compile(r"Target (-?\d+) is out of bounds")
_PREPARING = {
    "recording": "while samples were recorded",
    "observing": "while the stages of a sample were timed",
    "examining": "while a few samples were made twice",
    "receiving": "while batches were received",
}
"""Phases before the experiments, by their internal names."""

_IN_MAIN = "num_workers=0 shows where it ended"
_MEMORY = (
    "If the kernel's out-of-memory killer ended it (see dmesg, and the memory limit of the container), use fewer "
    f"workers or a smaller batch; if not, {_IN_MAIN}."
)
_NATIVE = (
    "Native code called by the dataset ended it: with PYTHONFAULTHANDLER=1 in the environment, standard error "
    f"shows where; {_IN_MAIN} as well."
)
_ENDED_ITSELF = f"Code of the job called os._exit or similar; {_IN_MAIN}."
_REMEDIES_OF_DEATHS = {
    "SIGBUS": f"If /dev/shm is full (df -h /dev/shm): {_SHM_REMEDY} If not, a mapped file became shorter.",
    **dict.fromkeys(("SIGSEGV", "SIGABRT", "SIGILL", "SIGFPE"), _NATIVE),
    "SIGTERM": "Something outside ended it, such as the batch system at its time limit, or a clean-up of processes.",
}
"""Remedies by signal; others, above all SIGKILL, are attributed to the out-of-memory killer."""


def _is_full(text: str) -> bool:
    return any(sign in text for sign in ("shared memory", "Bus error", "No space left"))


def _during(experiment: str) -> str:
    return _PREPARING.get(experiment, f"experiment {experiment}")


def name_mode(mode: int, present: str) -> str:
    """Return the experiment that a mode belongs to, with or without hand-off, which calls no code of the user's.

    Args:
        mode: The mode in which a batch was made.
        present: Name for modes with everything real, and those that only the plan knows.
    """
    if mode & modes.RECORD:
        return "recording"
    for name, known in modes.MODE_OF_EXPERIMENT.items():
        if mode | modes.HANDOFF == known:
            return name
    missing = [name for name in ("load", "augment", "collate") if not mode & modes.BIT_OF_STAGE[name]]
    return present if mode >= modes.SKIP_OTHER or not missing else f"without {', '.join(missing)}"


def one_line(error: BaseException) -> str:
    """Return the class of an exception and the first line of its message."""
    lines = traceback.format_exception_only(type(error), error)[-1].strip().splitlines()
    if len(lines) > 1 and _ORIGINAL in lines[1]:  # PyTorch's text around a worker's exception
        last_frame = max(number for number, line in enumerate(lines) if line.startswith(" ") or number == 1)
        lines = lines[last_frame + 1 :] or lines
    return lines[0]


def explain_loader_failure(error: BaseException, experiment: str, *, mode: int | None = None) -> MeasurementError:
    """Explain an exception raised by the loader.

    Args:
        error: The exception.
        experiment: Name of what is running.
        mode: Its mode, if it is an arm. A batch that was asked for before is told by the mode that it was made in.
    """
    failure = find_failure(error)
    if failure is not None:
        is_of_arm = failure.mode == mode
        return _explain_users_failure(failure, experiment if is_of_arm else name_mode(failure.mode, experiment))
    text, during = text_of(error), _during(experiment)
    death = find_death(text)
    how = remedy_of_death = ""
    if death is not None:
        remedy_of_death = _REMEDIES_OF_DEATHS.get(death.signal or "", _MEMORY)
        how = f" of {death.signal}" if death.signal else ""
        if death.status is not None:
            remedy_of_death = _ENDED_ITSELF
            how = how or f" with status {death.status}"
    known = (
        (
            "timed out" in text,
            f"The workers gave no batch for a long time, {during}",
            "Find where they hang with `py-spy dump --pid PID`, or give the loader a longer timeout=.",
        ),
        (death is not None, f"A worker died{how}, {during}", remedy_of_death),
        (_is_full(text), f"Shared memory ran out, {during}", _SHM_REMEDY),
        (
            "Too many open files" in text or "ancdata" in text,
            f"File descriptors ran out, {during}",
            "Raise the limit with `ulimit -n 65536` in the shell that starts the job.",
        ),
    )
    for is_it, what, remedy in known:
        if is_it:
            return MeasurementError(f"{what}: {one_line(error)}", remedy)
    what, remedy = f"The loader raised, {during}", "The job itself would fail there as well."
    if _NOT_PICKLED.search(text):
        what, remedy = "The job cannot be sent to its workers", PICKLE_REMEDY
    return MeasurementError(f"{what}: {one_line(error)}", remedy, users_traceback(error))


def _explain_users_failure(failure: Failure, experiment: str) -> MeasurementError:
    at = ""
    if failure.index is not None:  # only the collate function knows which sample of a batch it was
        at = f" for the samples {failure.index}" if failure.where == "collate_fn" else f" at index {failure.index}"
    who = f" in worker {failure.worker}" if failure.worker is not None else " in the main process"
    remedies = {**_REMEDIES_OF_COLLATING} if failure.where == "collate_fn" else {}
    known = (remedy for sign, remedy in remedies.items() if sign in failure.error)
    remedy = _SHM_REMEDY if _is_full(failure.error) else next(known, _FAILS_TOO)
    return MeasurementError(
        f"{_PARTS.get(failure.where, failure.where)} raised{at}{who}, {_during(experiment)}: "
        f"{' '.join(failure.error.split())}",
        remedy,
        failure.traceback,
    )


def explain_step_failure(
    error: BaseException, experiment: str, what: str = "train step", *, mode: int | None = None
) -> MeasurementError:
    """Explain an exception of the train step or the transfer, or one of the loader."""
    if came_from_loader(error):
        return explain_loader_failure(error, experiment, mode=mode)
    return MeasurementError(
        f"The {what} raised, {_during(experiment)}: {one_line(error)}", _step_remedy(error), users_traceback(error)
    )


def lacks_memory(error: BaseException | None) -> bool:
    """Return True if an error, or one of its causes, reports that memory ran out.

    The type decides if there is one; the text is a last resort for libraries such as cuBLAS, and for workers' errors.
    """
    while error is not None:
        if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError) or _NO_MEMORY.search(text_of(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _step_remedy(error: BaseException) -> str:
    text = text_of(error)
    if isinstance(error, MemoryError) or _NO_HOST_MEMORY.search(text):
        return "The machine's memory is full: use a smaller batch_size or fewer workers, or end other processes."
    if lacks_memory(error):
        return (
            "The device's memory is full: use a smaller batch_size, or end other processes on the device. The batches "
            f"that a diagnosis caches are there as well: {cache_option(_FEW_BYTES)} keeps fewer."
        )
    label = _LABEL.search(text)
    if label is not None:
        return f"A label is {label[1]}, but the model has no such output: it needs one for each class, counted from 0."
    if "device-side assert" in text:
        return "Often a label or an index is out of range: the message on the CPU says which."
    return "Run the step alone on one batch of the loader; it must work there first."


def explain_end(error: BaseException) -> BaseException:
    """Return an explanation of the error that ended the measuring; raise bugs of bottleneck unchanged."""
    if isinstance(error, (MeasurementError, KeyboardInterrupt)):
        return error
    # PyTorch's handler of SIGCHLD raises anywhere in this process when a worker dies.
    if isinstance(error, RuntimeError) and came_from_loader(error):
        return explain_loader_failure(error, "raw")
    if isinstance(error, Exception):
        raise error
    return explain_escape(error)


def explain_escape(error: BaseException) -> MeasurementError:
    """Explain an error that is not an Exception, such as SystemExit: only the job's code raises those."""
    return MeasurementError(
        f"The job's own code raised {one_line(error)}",
        "It would end the job as well; raise an exception that explains the problem instead.",
        users_traceback(error),
    )


def came_from_loader(error: BaseException) -> bool:
    """Return True if an exception passed through the loader's iterator, or reports a worker that died.

    PyTorch's handler of SIGCHLD raises anywhere in the main process, such as in the train step.
    """
    if "DataLoader worker (pid" in text_of(error):
        return True
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is SwitchedLoader.next_batch.__code__:
            return True
        trace = trace.tb_next
    return False


def nothing_to_load(error: LoaderEnded) -> MeasurementError:
    """Explain a loader that yields no batch, or no further batch."""
    if error.received:
        return MeasurementError(
            "The loader came to its end and yielded no batch when it was restarted: its dataset or its sampler can be "
            "iterated only once.",
            "Let __iter__ begin again each time it is called, as a generator function does.",
        )
    return MeasurementError(
        "The loader yielded no batch: its dataset or its sampler is empty.",
        "Check len(dataset), and with an IterableDataset that at least one worker gets a share of the data.",
    )


@contextmanager
def _explained(
    explain: Callable[..., MeasurementError], experiment: str, *what: str, mode: int | None = None
) -> Iterator[None]:
    try:
        yield
    except LoaderEnded as error:
        raise nothing_to_load(error) from error
    except NOT_THE_USERS:
        raise
    except BaseException as error:
        raise explain(error, experiment, *what, mode=mode) from error


loader_failures = partial(_explained, explain_loader_failure)
"""Explain exceptions of the loader inside the block. Args: experiment, and its mode if it is an arm."""
job_failures = partial(_explained, explain_step_failure)
"""Explain exceptions of the job inside the block, by the user's step or the loader. Args: as above, and what failed."""
