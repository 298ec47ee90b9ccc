"""Advice on starting up: the largest part of it that can be less, and datasets that are long on their way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bottleneck.analysis.advice.case import Case, Suggestion, rule
from bottleneck.analysis.settings import over_0, starts_slowly
from bottleneck.results.format import duration, plural, size
from bottleneck.results.starting import AGAIN, DATASET, IMPORTS, SENDING, WORKERS, Starting, StartingLine

_MIN_SAVED_S, _MIN_SAVED_SHARE = 1.0, 0.1
"""Minimum that a change has to save to be advised, in seconds and as a share of starting up."""
_LARGE_PICKLE_BYTES = 50 << 20
_LONG_START_S = 1.0
"""Time that pickling takes for all workers, one after the other, from which it is worth advice."""
_GUARD = 'if __name__ == "__main__":'


@dataclass(frozen=True)
class _Change:
    """A change that makes starting up shorter.

    Attributes:
        saves_s: Time that it saves at most [s].
        title: As of advice.
        why: The part that it is about, as a sentence.
        how: As of advice.
        evidence: Numbers of its own.
    """

    saves_s: float
    title: str
    why: str
    how: str
    evidence: dict[str, Any] = field(default_factory=dict)


def seconds_of(starting: Starting, *names: str) -> float:
    """Return the time of some parts of starting up [s]."""
    return sum(over_0(part.seconds) or 0.0 for part in starting.parts if part.name in names)


@rule("slow-start")
def _slow_start(case: Case) -> Iterator[Suggestion]:
    """Advise the change that saves the most of a slow start."""
    starting = case.evidence.starting
    whole_s = over_0(starting.seconds)
    if whole_s is None or not starts_slowly(starting):
        return
    best = max((*_again(case, starting), *_before(starting)), key=lambda change: change.saves_s, default=None)
    if best is None or best.saves_s < max(_MIN_SAVED_S, _MIN_SAVED_SHARE * whole_s):
        return
    yield Suggestion(
        title=best.title,
        why=f"The script takes {duration(whole_s)} until its first step is done. {best.why} "
        f"The change saves at most {duration(best.saves_s)}.",
        how=best.how,
        evidence={"starting_s": whole_s, "saves_s": best.saves_s, **best.evidence},
    )


def _again(case: Case, starting: Starting) -> Iterator[_Change]:
    """Yield changes to what workers import again: the guard of the main module, and a server that preloads."""
    method, bare_s = case.evidence.loader.start_method, over_0(starting.bare_worker_s)
    start_s, workers = seconds_of(starting, AGAIN, WORKERS), round(case.workers)
    if method not in ("spawn", "forkserver") or not workers or not start_s:
        return
    evidence = {"num_workers": workers, "bare_worker_s": bare_s, "start_method": method}
    each = f"each of {plural(workers, 'worker')}" if workers > 1 else "the worker"
    lines = [line for line in starting.lines if line.again and line.path and over_0(line.seconds)]
    for line in lines[:1]:
        line_s = over_0(line.seconds) or 0.0
        # Without a single worker started by itself it is not known how far they start side by side.
        of_start_s = workers * line_s if bare_s is None else start_s * line_s / bare_s
        yield _Change(
            min(start_s, of_start_s),
            "Do not run again in each worker what only the main process needs",
            f"`{_code(line)}` ({line.path}:{line.line}) takes {duration(line_s)}, and {each} runs it again, because "
            f"{method} imports the script.",
            f"put it under {_GUARD}, or into the function that needs it. Where workers need it too: "
            f"{_preload('the module')}",
            {**evidence, "path": line.path, "line": line.line, "line_s": line_s},
        )
    if bare_s is not None:
        yield _server(start_s, bare_s, method, each, evidence)


def _server(start_s: float, bare_s: float, method: str, each: str, evidence: dict[str, Any]) -> _Change:
    return _Change(
        max(0.0, start_s - bare_s),
        "Import once for all workers what they need",
        f"With {method}, {each} imports the script and its modules again: {duration(bare_s)} each.",
        _preload("what the script imports"),
        evidence,
    )


def _preload(modules: str) -> str:
    return (
        f'DataLoader(..., multiprocessing_context="forkserver"), and before it '
        f'multiprocessing.set_forkserver_preload(["torch", ...]) with {modules}; persistent_workers=True spares '
        "later epochs the start"
    )


def _before(starting: Starting) -> Iterator[_Change]:
    """Yield changes to lines of the main process before its loop that make the dataset or import."""
    remedies = {
        DATASET: (
            "Make the dataset from a list that is kept",
            "list, read and check the files once, and keep the result in a file (np.save, Arrow) that __init__ loads",
        ),
        IMPORTS: (
            "Import later what the training does not need",
            "import it in the function that uses it; python -X importtime train.py shows which modules take the time",
        ),
    }
    for line in starting.lines:
        line_s = over_0(line.seconds)
        if line_s is not None and line.part in remedies and line.path and _is_the_users_to_change(line):
            title, how = remedies[line.part]
            why = f"`{_code(line)}` ({line.path}:{line.line}) takes {duration(line_s)} of it, in {line.part}."
            # A list that is kept saves all of what makes it; an import that comes later only itself.
            saved_s = max(line_s, seconds_of(starting, DATASET)) if line.part == DATASET else line_s
            yield _Change(saved_s, title, why, how, {"path": line.path, "line": line.line, "line_s": line_s})


def _is_the_users_to_change(line: StartingLine) -> bool:
    """Return False for what a training needs, and for a library that imports within a call, as PyTorch does."""
    statement, *modules = _code(line).replace(",", " ").split() or [""]
    needed = line.needed or any(module.startswith("torch") for module in modules)
    return line.part != IMPORTS or (statement in ("import", "from") and not needed)


def _code(line: StartingLine) -> str:
    return line.code or "the line"


@rule("spawn-pickling")
def _spawn_pickling(case: Case) -> Iterator[Suggestion]:
    """Advise a lighter dataset if starting the workers sends a large one to each of them."""
    facts, workers = case.evidence.loader, round(case.workers)
    nbytes, each_s = over_0(facts.dataset_pickle_bytes), over_0(facts.dataset_pickle_s)
    if not workers or facts.start_method not in ("spawn", "forkserver") or nbytes is None or each_s is None:
        return
    pickling_s, sending_s = workers * each_s, _one_after_the_other_s(case)
    if nbytes < _LARGE_PICKLE_BYTES and pickling_s < _LONG_START_S:
        return
    at_least = "at least " if facts.dataset_pickle_complete is False else ""
    heavy = (facts.python_objects_largest or "samples").rpartition(".")[2]
    until = f" Workers with less to receive start side by side, {duration(sending_s)} sooner." if sending_s else ""
    yield Suggestion(
        title="Send less to the workers when they start",
        why=f"With {facts.start_method} the dataset is pickled for each of {plural(workers, 'worker')}: {at_least}"
        f"{size(nbytes)} and {duration(each_s)} each, one after the other.{until}",
        how="open and read large data in the worker, at the first __getitem__, and leave it out of the pickle: "
        "def __getstate__(self): return {**self.__dict__, " + f'"{heavy}": None' + "}",
        evidence={
            "dataset_pickle_bytes": nbytes,
            "dataset_pickle_s": each_s,
            "num_workers": workers,
            "saves_s": max(pickling_s, sending_s),
        },
        gain=_gain_by_epoch(case, max(pickling_s, sending_s)),
    )


def _one_after_the_other_s(case: Case) -> float:
    """Return the time that workers take longer to start because each waits until the one before has its dataset [s].

    A dataset that fits into the pipe lets them start side by side, on as many cores as there are.
    """
    starting = case.evidence.starting
    bare_s = over_0(starting.bare_worker_s)
    if bare_s is None or not seconds_of(starting, SENDING):
        return 0.0
    turns = max(1.0, case.workers / (case.cores or case.workers))
    return max(0.0, seconds_of(starting, AGAIN, SENDING) - turns * bare_s)


def _gain_by_epoch(case: Case, saved_s: float) -> float:
    """Return the gain of an epoch whose start is shorter, if each epoch starts new workers."""
    length, batch_size = case.positive("dataset_length"), case.positive("batch_size")
    if case.pipeline.get("persistent_workers") is not False or not length or not batch_size:
        return 1.0
    epoch_s = length / batch_size * case.step_s
    return (epoch_s + saved_s) / epoch_s


RULES = (_slow_start, _spawn_pickling)
