"""What the start of the workers and their copies of the dataset cost, and where there is no use for workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bottleneck.analysis.case import Case, Item, rule
from bottleneck.analysis.lookup import text_at
from bottleneck.analysis.names import BEYOND_THE_WORKER, COMPUTE, COPY
from bottleneck.analysis.observed import amount, held_stage, memory_bytes, setting, work_s_per_batch
from bottleneck.results.format import duration, names, number, percent, plural, significant
from bottleneck.results.records import Advice

_LARGE_PICKLE_BYTES = 50e6
_LONG_START_S = 1.0
"""Time that pickling takes for all workers, one after the other."""
_MEMORY_SHARE = 0.1
"""Share of the free memory that copies in the workers may take before it is told."""
_WORTH_LEAVING_WORKERS = 1.1
_MOST_NAMED = 3


@rule("no-workers-better")
def _no_workers(case: Case) -> Iterator[Item]:
    """Advise loading in the main process where that is less work than receiving the batches from workers."""
    workers = setting(case, "num_workers")
    if not workers or held_stage(case, "handoff") is None:
        return
    works = [work_s_per_batch(case, s) for s in case.stages if s.name not in (COMPUTE, *BEYOND_THE_WORKER)]
    known = [work for work in works if work is not None]
    if not known or len(known) < len(works):
        return
    copy = case.stage(COPY)
    copy_s = copy.exposed_s_per_batch.estimate if copy is not None and copy.exposed_s_per_batch else 0.0
    loading_s = sum(known)
    alone_s = case.device_s + max(0.0, copy_s) + loading_s
    gain = case.step_s / alone_s
    if gain < _WORTH_LEAVING_WORKERS:
        return
    advice = Advice(
        id="no-workers-better",
        stage=None,
        title="Load in the main process, without workers",
        why=f"All the loading of a batch takes one process {duration(loading_s)}: without workers a step would take "
        f"about {duration(alone_s)}, instead of {duration(case.step_s)} with them.",
        how="DataLoader(..., num_workers=0); try it with --set num_workers=0",
        evidence={"num_workers": workers, "loading_s_per_batch": loading_s, "step_s": case.step_s, "alone_s": alone_s},
    )
    yield Item(case.at_most_headroom(gain), advice)


@rule("spawn-pickling")
def _spawn_pickling(case: Case) -> Iterator[Item]:
    """Advise a lighter dataset where starting the workers sends a large one to each of them."""
    workers, method = setting(case, "num_workers"), case.evidence_text("loader", "start_method")
    nbytes = amount(case, "loader", "dataset_pickle_bytes")
    each_s = amount(case, "loader", "dataset_pickle_s")
    if not workers or method not in ("spawn", "forkserver") or nbytes is None or each_s is None:
        return
    start_s = workers * each_s
    if nbytes < _LARGE_PICKLE_BYTES and start_s < _LONG_START_S:
        return
    at_least = "at least " if case.evidence_flag("loader", "dataset_pickle_complete") is False else ""
    heavy = case.evidence_text("loader", "python_objects_largest")
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
    handles = [row for row in case.evidence_rows("loader", "open_handles") if text_at(row, "path")]
    if not workers or not handles:
        return
    first, listed = str(text_at(handles[0], "path")), names([_handle(row) for row in handles[:_MOST_NAMED]])
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


def _handle(row: Mapping[str, object]) -> str:
    return f"{text_at(row, 'path')} ({text_at(row, 'type') or 'open'})"


@rule("tokenizers-parallelism")
def _tokenizers_parallelism(case: Case) -> Iterator[Item]:
    """Advise a fixed setting where workers use a tokenizer that has threads of its own."""
    workers = setting(case, "num_workers")
    found = [name for name in case.evidence_list("loader", "tokenizers") if isinstance(name, str)]
    unset = case.evidence_value("loader", "tokenizers_parallelism") is None
    told = case.evidence_value("loader", "worker_threads") is not None
    if not workers or not found or not unset or not told:
        return
    forked = case.evidence_text("loader", "start_method") == "fork"
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
    workers, nbytes = setting(case, "num_workers"), amount(case, "loader", "python_object_bytes")
    objects, free = amount(case, "loader", "python_objects"), memory_bytes(case)
    if case.evidence_text("loader", "start_method") != "fork" or not workers or not nbytes or not objects or not free:
        return
    copies = nbytes * workers
    if copies < _MEMORY_SHARE * free:
        return
    where = case.evidence_text("loader", "python_objects_largest") or "the dataset"
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
    _no_workers,
    _spawn_pickling,
    _fork_unsafe_handles,
    _tokenizers_parallelism,
    _python_objects,
)
