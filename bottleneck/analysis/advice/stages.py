"""What to do next about the stages that hold the job: a closer look, or less waiting."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.analysis.advice.case import MOSTLY, Case, Suggestion, rule
from bottleneck.analysis.advice.workers import more_at_once
from bottleneck.analysis.parts import waiting_share
from bottleneck.results.format import cache_option, duration, gain, names, percent, percent_interval
from bottleneck.results.names import COMPUTE, FETCH, LOADING, OTHER, moves_batches, stages_in
from bottleneck.results.records import Stage

_LOOK = "look-inside"


@rule("measure-longer")
def _measure_longer(case: Case) -> Iterator[Suggestion]:
    """Advise a longer measurement where the state is undecided."""
    if case.verdict.state != "undecided" or case.budget is None or case.lost is None:
        return
    yield Suggestion(
        title="Measure longer before changing anything",
        why=f"The loss is {percent_interval(case.lost)}: it may be worth work or not. At most "
        f"{gain(case.headroom)} is to be gained.",
        how=f"--budget {case.budget}",
        evidence={"loss_low": case.lost.low, "loss_high": case.lost.high},
    )


@rule(_LOOK, "cut-fetch", "mark-other", "split-stages", "wait-less")
def _stages_that_hold_the_job(case: Case) -> Iterator[Suggestion]:
    """Advise a next step for the bottleneck and each contributor, where its cost is known."""
    for stage in case.held_by:
        cost = stage.cost_s_per_batch or stage.exposed_s_per_batch
        waiting = waiting_share(stage, case.evidence)
        remedy = _remedy(case, stage, waits=waiting is not None and waiting > MOSTLY)
        if remedy is None or cost is None or cost.estimate <= 0:
            continue
        id, title, how = remedy
        evidence = {"cost_s_per_batch": cost.estimate, "step_s": case.step_s, "gain": case.gain_of(stage)}
        yield Suggestion(
            id=id,
            stage=stage.name,
            title=title,
            why=f"{stage.name} takes {duration(cost.estimate)} a batch, at a step of {duration(case.step_s)}."
            f"{_spent(stage, waiting)}",
            how=how,
            evidence=evidence if waiting is None else {**evidence, "waiting_share": waiting},
            frees_stage=True,
            fallback=id == _LOOK,
        )


def _remedy(case: Case, stage: Stage, *, waits: bool) -> tuple[str, str, str] | None:
    """The id, the title, and what to do; None for a transport, in which no code of the user's runs."""
    parts = stages_in(stage.name)
    if len(parts) > 1:
        wanted = case.evidence.cache_bytes_wanted
        option = "--cache-bytes SIZE (in Python: cache_bytes=)" if wanted is None else cache_option(wanted)
        return "split-stages", f"Give the caches more memory, to tell {names(parts)} apart", option
    if waits:
        return "wait-less", *_wait_less(case, stage)
    if stage.name == FETCH and case.has_loader:
        title = "Separate the augmentation from the loading, to see which of the two it is"
        if case.in_script:
            return "cut-fetch", title, 'put @bottleneck.stage("augment") on the function of the dataset that augments'
        return "cut-fetch", title, 'Pipeline(..., augment="transform"): the attribute of the dataset that augments'
    if stage.name == OTHER:
        title = "Mark more of what __getitem__ does: most of its time is in code without a mark"
        return "mark-other", title, 'put @bottleneck.stage("name") on the functions that it calls, and diagnose again'
    if moves_batches(stage.name):
        return None
    return _LOOK, f"See which lines of {stage.name} take the time", "--flamegraph DIR draws them"


def _wait_less(case: Case, stage: Stage) -> tuple[str, str]:
    """What to do about a stage that waits for most of its time; a faster decoder would gain it nothing."""
    if case.evidence.loader.own_workers:
        return (
            f"Let the workers within the dataset keep up: {stage.name} waits",
            "give the loader within the dataset more workers, by an option of the dataset's own (such as TorchIO's "
            "Queue(num_workers=...)), up to the number of cores",
        )
    if not case.has_loader:  # whether it waits for storage or for threads of its own was not seen
        return (
            "Let what makes the batches keep up: the loop waits for it",
            "if threads or processes of its own make them, give it more by its own option, up to the number of cores; "
            "if it reads by itself, read ahead, from a local disk",
        )
    if stage.name not in LOADING:
        how = "look for locks, sleeps, other processes and the network in it (py-spy dump --pid PID of a worker)"
        more = more_at_once(case, "; while it waits, more workers help: try {setting}")
        return f"Find out what {stage.name} waits for", how + more
    how = more_at_once(case, "a worker that waits takes no core: try {setting}; ")
    how += "keep the data on a local disk, in shards of many samples (tar files, WebDataset) instead of one file each"
    if stage.name == FETCH:
        how += '; mark its parts with @bottleneck.stage("read") and so on, to see which of them waits'
    return "Wait less for storage or the network", how


def _spent(stage: Stage, waiting: float | None) -> str:
    """A sentence on how the stage passes its time; empty where it says nothing of use."""
    if waiting is None:
        return ""
    if waiting > MOSTLY:
        return f" It is waiting {percent(waiting)} of its time, and computes for the rest."
    return f" It computes for {percent(1 - waiting)} of its time." if stage.name in LOADING else ""


@rule("faster-step")
def _faster_step(case: Case) -> Iterator[Suggestion]:
    """Advise work on the train step where the device holds the job: leave the input pipeline alone."""
    if case.verdict.state != "device_bound" or case.lost is None:
        return
    yield Suggestion(
        stage=COMPUTE,
        title="Leave the input pipeline; make the train step faster",
        why=f"The step takes {duration(case.device_s)} of {duration(case.step_s)} a batch; free input would "
        f"save {percent_interval(case.lost)} of it.",
        how="model = torch.compile(model); torch.autocast for matrix products; a larger batch",
        evidence={"device_s_per_batch": case.device_s, "step_s": case.step_s},
        fallback=True,
    )


RULES = (_measure_longer, _stages_that_hold_the_job, _faster_step)
