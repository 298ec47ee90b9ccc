"""What the start of the workers and their copies of the dataset cost."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.analysis.advice.rule import Case, Suggestion, rule
from bottleneck.analysis.settings import over_0
from bottleneck.results.evidence import OpenHandle
from bottleneck.results.format import duration, names, number, percent, plural, size

LARGE_PICKLE_BYTES = 50 << 20
LONG_START_S = 1.0
"""Time that pickling takes for all workers, one after the other."""
_MEMORY_SHARE = 0.1
"""Share of the free memory that copies in the workers may take without advice."""
_MOST_NAMED = 3


@rule("spawn-pickling")
def _spawn_pickling(case: Case) -> Iterator[Suggestion]:
    """Advise a lighter dataset where starting the workers sends a large one to each of them."""
    facts, workers = case.evidence.loader, case.workers
    nbytes, each_s = over_0(facts.dataset_pickle_bytes), over_0(facts.dataset_pickle_s)
    if not workers or facts.start_method not in ("spawn", "forkserver") or nbytes is None or each_s is None:
        return
    start_s = workers * each_s
    if nbytes < LARGE_PICKLE_BYTES and start_s < LONG_START_S:
        return
    at_least = "at least " if facts.dataset_pickle_complete is False else ""
    heavy = (facts.python_objects_largest or "samples").rpartition(".")[2]
    yield Suggestion(
        title="Send less to the workers when they start",
        why=f"With {facts.start_method} the dataset is pickled for each of {_workers(case)}: {at_least}"
        f"{size(nbytes)} and {duration(each_s)} each, one after the other.",
        how="open and read what is large in the worker, at the first __getitem__, and leave it out of the pickle: "
        "def __getstate__(self): return {**self.__dict__, " + f'"{heavy}": None' + "}",
        evidence={"dataset_pickle_bytes": nbytes, "dataset_pickle_s": each_s, "num_workers": workers},
        gain=_gain_by_epoch(case, start_s),
    )


def _gain_by_epoch(case: Case, start_s: float) -> float:
    """What an epoch would gain without the pickling, where each epoch starts the workers anew."""
    length, batch_size = case.positive("dataset_length"), case.positive("batch_size")
    if case.pipeline.get("persistent_workers") is not False or not length or not batch_size:
        return 1.0
    epoch_s = length / batch_size * case.step_s
    return (epoch_s + start_s) / epoch_s


@rule("fork-unsafe-handles")
def _fork_unsafe_handles(case: Case) -> Iterator[Suggestion]:
    """Advise to open files in the workers where forked workers share what the dataset holds open."""
    handles = [handle for handle in case.evidence.loader.open_handles if handle.path]
    if not case.workers or not handles:
        return
    first, listed = str(handles[0].path), names([_handle(handle) for handle in handles[:_MOST_NAMED]])
    yield Suggestion(
        title="Open files in each worker, not before",
        why=f"Open at the fork of {_workers(case)}: {listed}. They share one position in the file: "
        "reads can block each other, fail, or give wrong data.",
        how=f"set {first} = None in __init__, and open it at the first __getitem__: if {first} is None: {first} = ...",
        evidence={"open_handles": listed, "num_workers": case.workers},
    )


def _handle(handle: OpenHandle) -> str:
    return f"{handle.path} ({handle.type or 'open'})"


@rule("tokenizers-parallelism")
def _tokenizers_parallelism(case: Case) -> Iterator[Suggestion]:
    """Advise a fixed setting where workers use a tokenizer that has threads of its own."""
    facts = case.evidence.loader
    found, known = facts.tokenizers, facts.worker_threads.torch is not None
    if not case.workers or not found or facts.tokenizers_parallelism is not None or not known:
        return
    forked = facts.start_method == "fork"
    after_fork = "forked after a first use they warn and switch their threads off, else " if forked else ""
    yield Suggestion(
        title="Set TOKENIZERS_PARALLELISM for the workers",
        why=f"{_workers(case)} with tokenizers that have threads of their own ({names(found[:_MOST_NAMED])}), and "
        f"TOKENIZERS_PARALLELISM is not set: {after_fork}each worker starts a thread for every core when it encodes a "
        "batch of texts.",
        how='os.environ["TOKENIZERS_PARALLELISM"] = "false" before the tokenizer is made; the workers are parallel by '
        "themselves",
        evidence={"tokenizers": found[:_MOST_NAMED], "num_workers": case.workers},
    )


@rule("python-objects")
def _python_objects(case: Case) -> Iterator[Suggestion]:
    """Advise arrays where forked workers would copy many Python objects page by page."""
    facts, free = case.evidence.loader, case.free_memory_bytes
    nbytes, objects = over_0(facts.python_object_bytes), over_0(facts.python_objects)
    if facts.start_method != "fork" or not case.workers or not nbytes or not objects or not free:
        return
    copies = nbytes * case.workers
    if copies < _MEMORY_SHARE * free:
        return
    where = facts.python_objects_largest or "the dataset"
    yield Suggestion(
        title=f"Keep {where} in arrays instead of Python objects",
        why=f"The dataset holds about {number(objects)} Python objects ({size(nbytes)}), most "
        f"of them in {where}. Each of {_workers(case)} copies the pages as it reads them: up to "
        f"{size(copies)}, {percent(copies / free)} of what is free.",
        how=f"{where} = np.array({where}) (fixed-width text and numbers), or one byte array and offsets; Arrow and "
        "tensors are shared as well",
        evidence={
            "python_objects": objects,
            "python_object_bytes": nbytes,
            "num_workers": case.workers,
            "memory_available_bytes": free,
        },
    )


def _workers(case: Case) -> str:
    return plural(int(case.workers), "worker")


RULES = (
    _spawn_pickling,
    _fork_unsafe_handles,
    _tokenizers_parallelism,
    _python_objects,
)
