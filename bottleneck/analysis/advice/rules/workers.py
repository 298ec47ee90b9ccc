"""What the start of the workers and their copies of the dataset cost."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.analysis.advice.rule import Case, Item, rule
from bottleneck.analysis.advice.transforms import memory_bytes, over_0, setting
from bottleneck.results.evidence import OpenHandle
from bottleneck.results.format import duration, names, number, percent, plural, significant
from bottleneck.results.records import Advice

LARGE_PICKLE_BYTES = 50e6
LONG_START_S = 1.0
"""Time that pickling takes for all workers, one after the other."""
_MEMORY_SHARE = 0.1
"""Share of the free memory that copies in the workers may take before it is told."""
_MOST_NAMED = 3


@rule("spawn-pickling")
def _spawn_pickling(case: Case) -> Iterator[Item]:
    """Advise a lighter dataset where starting the workers sends a large one to each of them."""
    workers, method = setting(case, "num_workers"), case.evidence.loader.start_method
    nbytes = over_0(case.evidence.loader.dataset_pickle_bytes)
    each_s = over_0(case.evidence.loader.dataset_pickle_s)
    if not workers or method not in ("spawn", "forkserver") or nbytes is None or each_s is None:
        return
    start_s = workers * each_s
    if nbytes < LARGE_PICKLE_BYTES and start_s < LONG_START_S:
        return
    at_least = "at least " if case.evidence.loader.dataset_pickle_complete is False else ""
    heavy = case.evidence.loader.python_objects_largest
    advice = Advice(
        id="spawn-pickling",
        stage=None,
        title="Send less to the workers when they start",
        why=f"With {method} the dataset is pickled for each of {_workers(workers)}: {at_least}"
        f"{significant(nbytes / 1e6)} MB and {duration(each_s)} each, one after the other.",
        how="open and read what is large in the worker, at the first __getitem__, and leave it out of the pickle: "
        "def __getstate__(self): return {**self.__dict__, " + f'"{_last_name(heavy)}": None' + "}",
        evidence={"dataset_pickle_bytes": nbytes, "dataset_pickle_s": each_s, "num_workers": workers},
    )
    yield Item(_gain_by_epoch(case, start_s), advice)


def _gain_by_epoch(case: Case, start_s: float) -> float:
    """Return what an epoch would gain without the pickling, where each epoch starts the workers anew."""
    length, batch_size = setting(case, "dataset_length"), setting(case, "batch_size")
    if case.pipeline.get("persistent_workers") is not False or not length or not batch_size:
        return 1.0
    epoch_s = length / batch_size * case.step_s
    return (epoch_s + start_s) / epoch_s


@rule("fork-unsafe-handles")
def _fork_unsafe_handles(case: Case) -> Iterator[Item]:
    """Advise to open files in the workers where forked workers share what the dataset holds open."""
    workers = setting(case, "num_workers")
    handles = [handle for handle in case.evidence.loader.open_handles if handle.path]
    if not workers or not handles:
        return
    first, listed = str(handles[0].path), names([_handle(handle) for handle in handles[:_MOST_NAMED]])
    advice = Advice(
        id="fork-unsafe-handles",
        stage=None,
        title="Open files in each worker, not before",
        why=f"Open at the fork of {_workers(workers)}: {listed}. They share one position in the file: "
        "reads can block each other, fail, or give wrong data.",
        how=f"set {first} = None in __init__, and open it at the first __getitem__: if {first} is None: {first} = ...",
        evidence={"open_handles": listed, "num_workers": workers},
    )
    yield Item(1.0, advice)


def _workers(workers: float) -> str:
    return plural(int(workers), "worker")


def _handle(handle: OpenHandle) -> str:
    return f"{handle.path} ({handle.type or 'open'})"


@rule("tokenizers-parallelism")
def _tokenizers_parallelism(case: Case) -> Iterator[Item]:
    """Advise a fixed setting where workers use a tokenizer that has threads of its own."""
    workers = setting(case, "num_workers")
    found = case.evidence.loader.tokenizers
    unset = case.evidence.loader.tokenizers_parallelism is None
    told = case.evidence.loader.worker_threads.torch is not None
    if not workers or not found or not unset or not told:
        return
    forked = case.evidence.loader.start_method == "fork"
    after_fork = "forked after a first use they warn and switch their threads off, else " if forked else ""
    advice = Advice(
        id="tokenizers-parallelism",
        stage=None,
        title="Set TOKENIZERS_PARALLELISM for the workers",
        why=f"{_workers(workers)} with tokenizers that have threads of their own ({names(found[:_MOST_NAMED])}), and "
        f"TOKENIZERS_PARALLELISM is not set: {after_fork}each worker starts a thread for every core when it encodes a "
        "batch of texts.",
        how='os.environ["TOKENIZERS_PARALLELISM"] = "false" before the tokenizer is made; the workers are parallel by '
        "themselves",
        evidence={"tokenizers": found[:_MOST_NAMED], "num_workers": workers},
    )
    yield Item(1.0, advice)


@rule("python-objects")
def _python_objects(case: Case) -> Iterator[Item]:
    """Advise arrays where forked workers would copy many Python objects page by page."""
    workers, nbytes = setting(case, "num_workers"), over_0(case.evidence.loader.python_object_bytes)
    objects, free = over_0(case.evidence.loader.python_objects), memory_bytes(case)
    if case.evidence.loader.start_method != "fork" or not workers or not nbytes or not objects or not free:
        return
    copies = nbytes * workers
    if copies < _MEMORY_SHARE * free:
        return
    where = case.evidence.loader.python_objects_largest or "the dataset"
    advice = Advice(
        id="python-objects",
        stage=None,
        title=f"Keep {where} in arrays instead of Python objects",
        why=f"The dataset holds about {number(objects)} Python objects ({significant(nbytes / 1e9, 2)} GB), most "
        f"of them in {where}. Each of {_workers(workers)} copies the pages as it reads them: up to "
        f"{significant(copies / 1e9, 2)} GB, {percent(copies / free)} of what is free.",
        how=f"{where} = np.array({where}) (fixed-width text and numbers), or one byte array and offsets; Arrow and "
        "tensors are shared as well",
        evidence={
            "python_objects": objects,
            "python_object_bytes": nbytes,
            "num_workers": workers,
            "memory_available_bytes": free,
        },
    )
    yield Item(1.0, advice)


def _last_name(path: str | None) -> str:
    return path.rpartition(".")[2] if path else "samples"


RULES = (
    _spawn_pickling,
    _fork_unsafe_handles,
    _tokenizers_parallelism,
    _python_objects,
)
