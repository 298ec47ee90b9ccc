"""Causes that no stage's own code shows."""

from dataclasses import replace

from tests.analysis.rule_case import WORKERS, RuleCase, held_by
from tests.analysis.simulated import DEVICE_BOUND, Job, measure

_GARBAGE = {"share": 0.4, "seconds_each": 0.5, "objects": 3_000_000}
_YOUNG = {**_GARBAGE, "share": 0.01}
_STREAM = {"iterable": True, "idle_workers": 2, "shards": 2}
_SAMPLER = {"sampler": {"name": "WeightedRandomSampler", "choices": 3_000_000},
            "epoch_gap": {"seconds": 1.4, "order_s": 1.35, "batches": 300.0, "started_anew": False}}  # fmt: skip
_LINE = {"path": "train.py", "line": 7, "code": "return iter(sorted(keys))", "library": False}
_DRAWING = {"sampler": {"name": "Sorting", "line": _LINE}, "sampler_s_per_batch": 0.008}


def _held(**evidence):
    return held_by("load", evidence=evidence)


def _in_main(collecting_share, num_workers=0, stage=None):
    """A job whose main process collects garbage for that part of its time, by one of its lines in a part of a step."""
    lines = [{**_LINE, "code": "gc.collect()", "share": 0.9, "stage": stage}] if stage else []
    found = measure(
        replace(
            _held(collections=_YOUNG, loop={"lines": lines}), pipeline={"num_workers": num_workers, "batch_size": 32}
        )
    )
    return replace(
        found,
        experiments=tuple(
            replace(
                e,
                coupled=e.coupled and replace(
                    e.coupled,
                    blocks=tuple(replace(b, collecting_s=collecting_share * b.seconds) for b in e.coupled.blocks),
                ),
            )
            if e.name == "raw"
            else e
            for e in found.experiments
        ),
    )  # fmt: skip


def _skips(made, **environment):
    return replace(_held(loader={"iterable": True, "made_per_sample": made}), environment=environment)


def _draws(**changes) -> Job:
    return _held(**{**_DRAWING, **changes})


CASES = (
    RuleCase("garbage-collection", deserves=_held(collections=_GARBAGE), healthy=_held(collections=_YOUNG)),
    RuleCase(
        "garbage-collection",
        deserves=_held(collections=_GARBAGE),
        healthy=replace(DEVICE_BOUND, pipeline=WORKERS, evidence={"collections": _GARBAGE}),
    ),
    RuleCase("garbage-collection", deserves=_in_main(0.3), healthy=_in_main(0.02)),
    RuleCase("garbage-collection", deserves=_in_main(0.3, num_workers=4), healthy=_in_main(0.02, num_workers=4)),
    RuleCase(  # the loop itself collects, as the advice on its line says
        "garbage-collection",
        deserves=_in_main(0.3, num_workers=4),
        healthy=_in_main(0.3, num_workers=4, stage="step"),
    ),
    RuleCase("thrown-away", deserves=_skips(4), healthy=_skips(3), stage="load"),  # of 4 workers
    RuleCase("more-workers", deserves=_skips(None, cpu_cores_available=64), healthy=_skips(4, cpu_cores_available=64)),
    RuleCase("idle-workers", deserves=_held(loader=_STREAM), healthy=_held(loader={**_STREAM, "idle_workers": 0})),
    RuleCase(
        "slow-sampler",
        deserves=_held(**_SAMPLER),
        healthy=_held(**{**_SAMPLER, "epoch_gap": {**_SAMPLER["epoch_gap"], "batches": 30_000.0}}),
    ),
    RuleCase("slow-sampler", deserves=_draws(), healthy=_draws(sampler_s_per_batch=0.0002)),
)
