"""Causes that no stage's own code shows: collections of garbage, workers without a share, the order of samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from bottleneck.analysis.advice.case import Case, Suggestion, rule
from bottleneck.analysis.advice.edits import GARBAGE, IDLE, SAMPLER
from bottleneck.analysis.advice.saturation import raw_usage
from bottleneck.analysis.advice.workers import WORTH
from bottleneck.analysis.settings import over_0
from bottleneck.results.format import duration, number, percent, plural

# --- garbage collection -------------------------------------------------------------------------------------

_SHARE_OF_COLLECTIONS = 0.08
"""Of the work, or of the loop, from which on collections of all objects are worth sparing."""
_FREEZE = (
    "import gc; gc.collect(); gc.freeze(); gc.set_threshold(50_000, 20, 50)  # {when}\n"
    "# better still: keep in arrays or tensors what the dataset holds in many Python objects"
)


@rule(GARBAGE)
def _garbage(case: Case) -> Iterator[Suggestion]:
    """Advise to keep long-lived objects out of collections of garbage where these take much of the time."""
    seen = case.evidence.collections
    if not case.workers:
        share, where, stage = case.collecting_share, "the loop", None
        gain = 1 / (1 - share) if share < 1 else 1.0
        promised = case.at_most_headroom(gain) if case.input_bound else gain
    else:
        found = [(seen.stages.get(stage.name, 0.0), stage) for stage in case.held_by]
        share, held = max(found, key=lambda each: each[0], default=(0.0, None))
        if held is None:
            return
        where, stage = f"{held.name} in the workers", held.name
        promised = case.gain_of_part(held, share)
    if not _SHARE_OF_COLLECTIONS <= share < 1 or promised < WORTH:
        return
    spawned = case.workers and case.evidence.loader.start_method not in ("fork", None)
    when = "in a worker_init_fn" if spawned else "once the dataset is made, before the loop and its workers start"
    each_s, objects = over_0(seen.seconds_each), over_0(seen.objects)
    through = "" if objects is None else f" Each goes through {number(objects)} objects"
    takes = "" if each_s is None else f"{' and takes' if through else ' Each takes'} {duration(each_s)}"
    yield Suggestion(
        stage=stage,
        title=f"Spare Python its garbage collections: they take {percent(share)} of {where}",
        why=f"Of each minute of {where}, Python spends {duration(60 * share)} on looking through all of its objects "
        f"for garbage.{through}{takes}{'.' if through or takes else ''}",
        how=_FREEZE.format(when=when),
        evidence={"share": share, "objects": objects, "seconds_each": each_s, "young_share": seen.young_share},
        gain=promised,
    )


# --- workers of a stream ------------------------------------------------------------------------------------


@rule(IDLE)
def _idle_workers(case: Case) -> Iterator[Suggestion]:
    """Advise more shards where some workers have no share of a stream."""
    facts, workers = case.evidence.loader, round(case.workers)
    idle = facts.idle_workers or 0
    active = workers - idle
    if not case.input_bound or not 0 < idle < workers:
        return
    usage = raw_usage(case.evidence)
    own = None if usage is None else (usage.cores_main or 0.0) + (usage.cores_workers or 0.0)
    # What others take of the cores is no reason against: they are gone some day, and the idle workers are not.
    cores = case.cores / own if case.cores and own else workers
    promised = case.at_most_headroom(min(workers / active, cores))
    if promised < WORTH:
        return
    shards = f"the stream has {plural(facts.shards, 'shard')}" if facts.shards else "the others get nothing"
    yield Suggestion(
        title=f"Of {workers} workers only {active} {'delivers' if active == 1 else 'deliver'}: {shards}",
        why=f"{plural(idle, 'worker')} ended without a batch, and {plural(active, 'worker')} made all of them. A "
        "stream is divided by its files or shards: more workers than these do nothing.",
        how=f"write the data as {workers} files of like size or more, or divide what is there: stream.reshard() of "
        f"Hugging Face datasets, before shuffle(); until then num_workers={active} is as fast",
        evidence={"num_workers": workers, "idle_workers": idle, "shards": facts.shards},
        gain=promised,
    )


# --- the order of samples -----------------------------------------------------------------------------------

_MOST_SAVED = 0.99
_SHARE_OF_ORDER = 0.05
"""Of an epoch, or of a step, from which on choosing samples is worth a cheaper way."""
_CHEAPER = {
    # Measured for 3,000,000 of as many: 1.35 s, and 0.33 s so.
    "WeightedRandomSampler": (
        "p = weights / weights.sum(); times = rng.multinomial(samples, p)  # of numpy, in float64\n"
        "indices = rng.permutation(np.repeat(np.arange(len(p)), times))  # the same draw with replacement",
        0.7,
    ),
    "RandomSampler": ("RandomSampler(dataset, replacement=True)  # or shuffle parts, and samples within them", 1.0),
}
"""By the class of the sampler: what to write instead, and the part of the time that it saves."""
_DRAWN_BEFORE = "choose the samples of many epochs at once, or beforehand, and keep them in one array", 1.0


@rule(SAMPLER)
def _slow_sampler(case: Case) -> Iterator[Suggestion]:
    """Advise a cheaper order of the samples where choosing it takes much of an epoch, or of each step."""
    seen, epoch, draw_s = case.evidence.sampler, case.epoch, over_0(case.evidence.sampler_s_per_batch) or 0.0
    how, saved = _CHEAPER.get(seen.name or "", _DRAWN_BEFORE)
    gain, told = 1.0, []
    if epoch is not None and epoch.order_s >= _SHARE_OF_ORDER * epoch.seconds > 0:
        gain = epoch.seconds / (epoch.seconds - min(saved * epoch.order_s, _MOST_SAVED * epoch.seconds))
        told.append(
            f"takes {duration(epoch.order_s)} before the first batch of an epoch of {duration(epoch.seconds)} "
            f"({percent(epoch.order_s / epoch.seconds)})"
        )
    if case.input_bound and draw_s >= _SHARE_OF_ORDER * case.step_s:
        gain *= case.at_most_headroom(case.step_s / (case.step_s - min(draw_s, _MOST_SAVED * case.step_s)))
        told.append(f"takes {duration(draw_s)} for each batch, of a step of {duration(case.step_s)}")
    if not told:
        return
    name, line = seen.name or "The sampler", seen.line
    among = f", which chooses from {number(seen.choices)} samples," if seen.choices else ""
    at = f" Most of it is line {line.line} of {PurePath(line.path).name}: {line.code}" if line and line.path else ""
    yield Suggestion(
        title=f"Choose the order of the samples at less cost: {name} takes long",
        why=f"{name}{among} {' and '.join(told)}. It runs in the main process, where more workers do not help.{at}",
        how=how,
        evidence={
            "sampler": seen.name,
            "choices": seen.choices,
            "order_s": epoch.order_s if epoch is not None else None,
            "epoch_s": epoch.seconds if epoch is not None else None,
            "sampler_s_per_batch": draw_s,
            "step_s": case.step_s,
        },
        gain=gain,
    )


RULES = (_garbage, _idle_workers, _slow_sampler)
