"""Turn what went wrong while measuring into one sentence, with the user's own exception shown once."""

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
from bottleneck.loader.clone import Death, find_death
from bottleneck.loader.switched import LoaderEnded, SwitchedLoader
from bottleneck.loader.user_code import Failure, PassesThrough, find_failure
from bottleneck.results.format import cache_option

_ORIGINAL = "Original Traceback"
_PARTS = {"dataset": "The dataset", "collate_fn": "The collate function"}
NOT_THE_USERS = (BottleneckError, KeyboardInterrupt, GeneratorExit, PassesThrough)
"""Errors that need no explanation, or are on their way to where they are caught; all others are the user's code's."""
_SHM_REMEDY = (
    "Make /dev/shm larger (docker run --shm-size=8g), or use fewer workers, a smaller batch or a smaller "
    "prefetch_factor."
)
_FAILS_TOO = "The job itself would fail there too; fix that, or leave it out."
PICKLE_REMEDY = (
    "Use functions that a module has at its top, no lambdas, and open files and connections in __getitem__ instead of "
    "__init__; or let workers be forked: multiprocessing_context='fork'."
)
_NOT_PICKLED = re.compile(r"can(?:no|')t (?:pickle|get local object)", re.IGNORECASE)
_REMEDIES_OF_COLLATING = {
    "expects each tensor to be equal size": (
        "Samples of one batch differ in shape: resize them to one, or pass a collate_fn= that pads them."
    ),
    "NoneType": (
        "Probably a sample is None, or holds one: return a sample for each index, or leave None out in a collate_fn=."
    ),
}
"""By what the collate function says."""
_NO_HOST_MEMORY = re.compile(r"DefaultCPUAllocator: (?:can't allocate|not enough) memory")
_NO_MEMORY = re.compile(rf"out of memory|_ALLOC_FAILED|{_NO_HOST_MEMORY.pattern}", re.IGNORECASE)
_FEW_BYTES = 256 << 20
"""For caches, where there is no room for more."""
_LABEL = re.compile(r"Target (-?\d+) is out of bounds")
_PREPARING = {
    "recording": "while samples were recorded",
    "observing": "while the stages of a sample were timed",
    "examining": "while a few samples were made twice",
    "receiving": "while batches were received",
}
"""What is done before the experiments, by the name that it has inside."""

_IN_MAIN = "num_workers=0 shows where it ends"
_MEMORY = (
    "If the kernel's out-of-memory killer ended it (see dmesg, and the memory limit of the container), use fewer "
    f"workers or a smaller batch; if not, {_IN_MAIN}."
)
_NATIVE = (
    "Native code that the dataset calls ended it: with PYTHONFAULTHANDLER=1 in the environment it says on standard "
    f"error where it was; {_IN_MAIN} too."
)
_ENDED_ITSELF = f"Code of the job called os._exit or the like; {_IN_MAIN}."
_REMEDIES_OF_DEATHS = {
    "SIGBUS": f"If /dev/shm is full (df -h /dev/shm): {_SHM_REMEDY} If not, a file that was mapped became shorter.",
    **dict.fromkeys(("SIGSEGV", "SIGABRT", "SIGILL", "SIGFPE"), _NATIVE),
    "SIGTERM": "Something outside ended it: the batch system at its time limit, or a clean-up of processes.",
}
"""By signal; the others, above all SIGKILL, are taken for the out-of-memory killer."""


def _is_full(text: str) -> bool:
    return any(sign in text for sign in ("shared memory", "Bus error", "No space left"))


def _during(experiment: str) -> str:
    return _PREPARING.get(experiment, f"experiment {experiment}")


def name_mode(mode: int, present: str) -> str:
    """Name the experiment that a mode belongs to; `present` is the name for modes that only the plan knows."""
    if mode & modes.RECORD:
        return "recording"
    for name, known in modes.MODE_OF_EXPERIMENT.items():
        if mode == known:
            return name
    if mode >= modes.SKIP_OTHER:
        return present
    missing = [name for name, bit in modes.BIT_OF_STAGE.items() if name != "fetch" and not mode & bit]
    return f"without {', '.join(missing)}"


def one_line(error: BaseException) -> str:
    """Return the kind of an exception and the first line of what it says."""
    lines = traceback.format_exception_only(type(error), error)[-1].strip().splitlines()
    if len(lines) > 1 and _ORIGINAL in lines[1]:  # PyTorch's text around what a worker raised
        last_frame = max(number for number, line in enumerate(lines) if line.startswith(" ") or number == 1)
        lines = lines[last_frame + 1 :] or lines
    return lines[0]


def explain_loader_failure(error: BaseException, experiment: str) -> MeasurementError:
    """Explain an exception that came out of the loader."""
    failure = find_failure(error)
    if failure is not None:
        return _explain_users_failure(failure, experiment)
    text, during = text_of(error), _during(experiment)
    death = find_death(text)
    how = ""
    if death is not None and (death.signal or death.status is not None):
        how = f" of {death.signal}" if death.signal else f" with status {death.status}"
    known = (
        (
            "timed out" in text,
            f"The workers gave no batch for a long time, {during}",
            "Look where they hang with `py-spy dump --pid PID`, or give the loader a longer timeout=.",
        ),
        (death is not None, f"A worker died{how}, {during}", _remedy_of(death)),
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
    what, remedy = f"The loader raised, {during}", "The job itself would fail there too."
    if _NOT_PICKLED.search(text):
        what, remedy = "The job cannot be sent to its workers", PICKLE_REMEDY
    return MeasurementError(f"{what}: {one_line(error)}", remedy, users_traceback(error))


def _explain_users_failure(failure: Failure, experiment: str) -> MeasurementError:
    at = ""
    if failure.index is not None:  # which sample of a batch it was, only the collate function knows
        at = f" for the samples {failure.index}" if failure.where == "collate_fn" else f" at index {failure.index}"
    who = f" in worker {failure.worker}" if failure.worker is not None else " in the main process"
    remedies = {**_REMEDIES_OF_COLLATING} if failure.where == "collate_fn" else {}
    known = (remedy for sign, remedy in remedies.items() if sign in failure.error)
    remedy = _SHM_REMEDY if _is_full(failure.error) else next(known, _FAILS_TOO)
    return MeasurementError(
        f"{_PARTS.get(failure.where, failure.where)} raised{at}{who}, {_during(name_mode(failure.mode, experiment))}: "
        f"{' '.join(failure.error.split())}",
        remedy,
        failure.traceback,
    )


def _remedy_of(death: Death | None) -> str:
    if death is None:
        return ""
    return _ENDED_ITSELF if death.status is not None else _REMEDIES_OF_DEATHS.get(death.signal or "", _MEMORY)


def explain_step_failure(error: BaseException, experiment: str, what: str = "train step") -> MeasurementError:
    """Explain an exception that the train step or the transfer raised, or that reports a worker's death."""
    if came_from_loader(error):
        return explain_loader_failure(error, experiment)
    return MeasurementError(
        f"The {what} raised, {_during(experiment)}: {one_line(error)}", _step_remedy(error), users_traceback(error)
    )


def lacks_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that it came from, says that memory ran out: by its type where there is one.

    Its text is the last resort: libraries such as cuBLAS, and what a worker raised, have no type for it.
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
            "The device's memory is full: use a smaller batch_size, or end other processes on the device. Batches that "
            f"a diagnosis caches lie there, too: with {cache_option(_FEW_BYTES)} there are fewer."
        )
    label = _LABEL.search(text)
    if label is not None:
        return f"A label is {label[1]}, and the model has no such output: it needs one for each class, counted from 0."
    if "device-side assert" in text:
        return "Often a label or an index is out of range: on the CPU the message says which."
    return "Run the step by itself on one batch of the loader; it must work there first."


def explain_end(error: BaseException) -> BaseException:
    """Explain what ended the measuring; raise what is a fault of ours."""
    if isinstance(error, (MeasurementError, KeyboardInterrupt)):
        return error
    # PyTorch's handler of SIGCHLD raises wherever this process happens to be when a worker dies.
    if isinstance(error, RuntimeError) and came_from_loader(error):
        return explain_loader_failure(error, "raw")
    if isinstance(error, Exception):
        raise error
    return explain_escape(error)


def explain_escape(error: BaseException) -> MeasurementError:
    """Explain what is no Exception, such as SystemExit: only the job's code raises such a thing."""
    return MeasurementError(
        f"The job's own code raised {one_line(error)}",
        "It would end the job too; let it raise an exception that says what is wrong instead.",
        users_traceback(error),
    )


def explain_early_end(failure: BaseException) -> str:
    """Say in a result that it is only a part, and why."""
    why = failure.message if isinstance(failure, MeasurementError) else "It was interrupted."
    return f"The measuring ended early, so that this is only a part of a diagnosis. {why}"


def came_from_loader(error: BaseException) -> bool:
    """Whether an exception passed through the loader's iterator, or reports a worker that died.

    PyTorch's handler of SIGCHLD raises wherever the main process happens to be, such as in the train step.
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
    """Explain a loader that gives no batch, or no more."""
    if error.received:
        return MeasurementError(
            "The loader came to its end and, when it was started again, gave no batch: its dataset or its sampler can "
            "be gone through only once.",
            "Let __iter__ begin again each time it is called, as a generator function does.",
        )
    return MeasurementError(
        "The loader gave no batch: its dataset or its sampler is empty.",
        "Check len(dataset), and with an IterableDataset that at least one worker gets a share of the data.",
    )


@contextmanager
def _explained(explain: Callable[..., MeasurementError], experiment: str, *what: str) -> Iterator[None]:
    try:
        yield
    except LoaderEnded as error:
        raise nothing_to_load(error) from error
    except NOT_THE_USERS:
        raise
    except BaseException as error:
        raise explain(error, experiment, *what) from error


loader_failures = partial(_explained, explain_loader_failure)
"""Explains what the loader raises inside the block; gets the experiment."""
job_failures = partial(_explained, explain_step_failure)
"""The same of what the job raises, as a failure of the user's step or of the loader; gets also what of it may fail."""
