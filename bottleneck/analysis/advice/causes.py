"""Causes that no stage's own code shows: collections of garbage, workers without a share, the order of samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from bottleneck.analysis.advice.case import MUCH_COLLECTING, WORTH, Case, Suggestion, rule
from bottleneck.analysis.edits.edits import GARBAGE, IDLE, SAMPLER
from bottleneck.analysis.settings import over_0, raw_usage
from bottleneck.results.format import duration, number, percent, plural
from bottleneck.results.names import makes_samples
from bottleneck.results.samples import SamplerSeen

# --- garbage collection -------------------------------------------------------------------------------------

_FREEZE = (
    "import gc; gc.collect(); gc.freeze(); gc.set_threshold(50_000, 20, 50)  # {when}\n"
    "# better still: keep the data of the dataset in arrays or tensors, not in many Python objects"
)
_SELDOM = "if step % 1000 == 0:  # or never: Python collects automatically\n    gc.collect()"


@rule(GARBAGE)
def _garbage(case: Case) -> Iterator[Suggestion]:
    """Advise to keep long-lived objects out of collections of garbage if these take much of the time."""
    seen, of_main, of_workers = case.evidence.collections, case.collecting_share, case.evidence.collections.share
    # Its long waits are what may leave the state undecided.
    if case.workers and case.verdict.state != "device_bound" and of_workers and of_workers > of_main:
        share, where = of_workers, "the workers' time"
        saved_s = share * min(case.loader_s, case.step_s)
        promised = case.at_most_headroom(case.step_s / max(case.step_s - saved_s, case.device_s))
    else:
        share, where = of_main, "the main process's time" if case.workers else "the loop's time"
        promised = 1 / (1 - share) if share < 1 else 1.0
        # With its own loader, the main process may well collect in its step.
        promised = case.at_most_headroom(promised) if case.input_bound and not case.workers else promised
    if not MUCH_COLLECTING <= share < 1 or promised < WORTH:
        return
    each = ""
    if seen.objects and seen.seconds_each:
        each = f" One goes through {number(seen.objects)} objects in {duration(seen.seconds_each)}."
    lines = case.evidence.lines if share == of_workers else case.evidence.loop.lines
    forced = [line for line in lines if "gc.collect(" in (line.code or "") and (line.share or 0.0) >= MUCH_COLLECTING]
    if any(line in case.evidence.loop.lines for line in forced):  # `loop-line` says it
        return
    spawned = case.workers and case.evidence.loader.start_method not in ("fork", None)
    when = "in a worker_init_fn" if spawned else "once the dataset is made, before the loop and its workers start"
    do = "Call gc.collect() less often: it takes" if forced else "Avoid Python's garbage collections: they take"
    yield Suggestion(
        title=f"{do} {percent(share)} of {where}",
        why=f"Python spends {duration(60 * share)} of each minute searching all of its objects for garbage.{each}",
        how=_SELDOM if forced else _FREEZE.format(when=when),
        evidence={"share": share, "objects": seen.objects, "seconds_each": seen.seconds_each}
        | ({"path": forced[0].path, "line": forced[0].line} if forced else {}),
        gain=promised,
    )


# --- workers of a stream ------------------------------------------------------------------------------------


@rule(IDLE)
def _idle_workers(case: Case) -> Iterator[Suggestion]:
    """Advise more shards if some workers have no share of a stream."""
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
    shards = f"the stream has {plural(facts.shards, 'shard')}" if facts.shards else "the others get no data"
    yield Suggestion(
        title=f"Only {active} of {workers} workers {'delivers' if active == 1 else 'deliver'} batches: {shards}",
        why=f"{plural(idle, 'worker')} ended without a batch, and {plural(active, 'worker')} made all of them. A "
        "stream is divided by its files or shards: workers beyond their number are idle.",
        how=f"write the data as {workers} files of similar size or more, or split the existing ones: stream.reshard() "
        f"of Hugging Face datasets, before shuffle(); until then num_workers={active} is as fast",
        evidence={"num_workers": workers, "idle_workers": idle, "shards": facts.shards},
        gain=promised,
    )


@rule("thrown-away")
def _thrown_away(case: Case) -> Iterator[Suggestion]:
    """Advise to divide a stream before its samples are made if each worker makes those of all workers."""
    made = case.evidence.loader.made_per_sample
    stage = next((stage for stage in case.suspects if makes_samples(stage.name)), None)
    if stage is None or not made or made < 2 or made != case.workers:
        return
    part = 1 - 1 / made
    yield Suggestion(
        stage=stage.name,
        title=f"Split the stream before samples are made: {made - 1} of {made} are thrown away",
        why=f"Each of {made} workers makes {made} samples for each one that it delivers, and discards those of the "
        "other workers. Additional workers would do the same. The gain assumes that "
        f"{percent(part)} of {stage.name} takes no time.",
        how="in __iter__, take every n-th file, record or index, and decode only those: "
        "self.decode(itertools.islice(records, info.id, None, info.num_workers))",
        evidence={"made_per_sample": made, "num_workers": case.workers, "gain": case.gain_of(stage)},
        gain=case.gain_of_part(stage, part),
        cause=True,
    )


# --- the order of samples -----------------------------------------------------------------------------------

_MAX_SAVED = 0.99
_SHARE_OF_ORDER = 0.05
"""Share of an epoch or a step above which choosing samples is worth a cheaper way."""
_FEW = 0.1
"""Draws of an epoch, as a part of the population, below which each may be looked up separately."""
_LOOKED_UP = (
    "total = torch.cumsum(weights.double(), 0)  # once\n"
    "indices = torch.searchsorted(total, torch.rand(samples, dtype=torch.double) * total[-1])  # with replacement",
    0.95,
)
_COUNTED = (
    "p = weights / weights.sum(); times = rng.multinomial(samples, p)  # of numpy, in float64\n"
    "indices = rng.permutation(np.repeat(np.arange(len(p)), times))  # the same draw with replacement",
    0.7,  # measured for 3,000,000 of as many: 1.35 s, and 0.33 s so
)
_AS_IT_GOES = "RandomSampler(dataset, replacement=True)  # or shuffle parts, and samples within them", 0.95
_DRAWN_BEFORE = "choose the samples of many epochs at once, or beforehand, and keep them in one array", 0.95


def _cheaper(seen: SamplerSeen) -> tuple[str, float]:
    """Return the replacement for a sampler, by its class, and the part of its time that this saves."""
    if seen.name == "WeightedRandomSampler" and seen.replacement is not False:
        return _LOOKED_UP if seen.draws and seen.choices and seen.draws <= _FEW * seen.choices else _COUNTED
    return _AS_IT_GOES if seen.name == "RandomSampler" else _DRAWN_BEFORE


@rule(SAMPLER)
def _slow_sampler(case: Case) -> Iterator[Suggestion]:
    """Advise a cheaper order of the samples if choosing it takes much of an epoch, or of each step."""
    seen, epoch, draw_s = case.evidence.sampler, case.epoch, over_0(case.evidence.sampler_s_per_batch) or 0.0
    how, saved = _cheaper(seen)
    gain, told = 1.0, []
    if epoch is not None and epoch.order_s >= _SHARE_OF_ORDER * epoch.seconds > 0:
        gain = epoch.seconds / (epoch.seconds - min(saved * epoch.order_s, _MAX_SAVED * epoch.seconds))
        told.append(
            f"takes {duration(epoch.order_s)} before the first batch of an epoch of {duration(epoch.seconds)} "
            f"({percent(epoch.order_s / epoch.seconds)})"
        )
    if case.input_bound and draw_s >= _SHARE_OF_ORDER * case.step_s:
        gain *= case.at_most_headroom(case.step_s / (case.step_s - min(draw_s, _MAX_SAVED * case.step_s)))
        told.append(f"takes {duration(draw_s)} per batch, of a step of {duration(case.step_s)}")
    if not told:
        return
    name, line = seen.name or "The sampler", seen.line
    among = f", which chooses from {number(seen.choices)} samples," if seen.choices else ""
    at = f" Most of it is line {line.line} of {PurePath(line.path).name}: {line.code}" if line and line.path else ""
    yield Suggestion(
        title=f"Draw the order of the samples faster: {name} is slow",
        why=f"{name}{among} {' and '.join(told)}. It runs in the main process, where more workers do not help.{at}",
        how=how,
        evidence={
            "sampler": seen.name,
            "choices": seen.choices,
            "draws": seen.draws,
            "order_s": epoch and epoch.order_s,
            "epoch_s": epoch and epoch.seconds,
            "sampler_s_per_batch": draw_s,
            "step_s": case.step_s,
        },
        gain=gain,
    )


RULES = (_garbage, _idle_workers, _thrown_away, _slow_sampler)
