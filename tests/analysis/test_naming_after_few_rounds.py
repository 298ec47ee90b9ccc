"""Which stage is named after few and noisy rounds, over simulated jobs of one worker: rather none than a wrong one.

As with real jobs, a stage that happens to be measured well must not be named for that alone.
"""

import random
from collections import Counter

from bottleneck.analysis.analyse import analyse
from tests.analysis.simulated import Job, measure

JOBS, ROUNDS, NOISE = 200, 3, 0.12
_AS_GOOD = 0.85
"""A stage is right that gains this part of what the best one gains."""
_SHARPNESS = 8
"""How sharply the step is the longer of loading and training."""


def job_of(seed: int) -> tuple[Job, dict[str, float]]:
    """A job that waits for its worker, with stages of random sizes, and what it gains without each of them."""
    draw = random.Random(seed)
    step_s = draw.uniform(0.005, 0.030)
    loading_s = step_s * draw.choice([1.1, 1.3, 1.6, 2.5, 4])
    shares = {"augment": draw.random(), "load": draw.random(), "collate": 0.3 * draw.random()}
    augment_s, load_s, collate_s = (loading_s * share / sum(shares.values()) for share in shares.values())

    def coupled(worker_s: float) -> float:
        return (step_s**_SHARPNESS + worker_s**_SHARPNESS) ** (1 / _SHARPNESS)

    alone = {"collate": augment_s + load_s, "augment": load_s + collate_s, "load": augment_s + collate_s}
    without = {"handoff": coupled(loading_s)} | {name: coupled(rest_s) for name, rest_s in alone.items()}
    ladder = {
        "device": step_s,
        "after_collate": coupled(0.0003),
        "before_collate": coupled(collate_s),
        "before_augment": coupled(augment_s + collate_s),
        "raw": coupled(loading_s),
    }
    job = Job(ladder, {"raw": loading_s}, without, workers=loading_s, serving=loading_s, alone=alone)
    return job, {name: ladder["raw"] / rest_s for name, rest_s in without.items()}


def judge(seed: int) -> str:
    job, gains = job_of(seed)
    named = analyse(measure(job, rounds=ROUNDS, noise=NOISE, seed=seed)).verdict.bottleneck
    if named is None:
        return "none"
    return "right" if gains.get(named, 1.0) - 1 >= _AS_GOOD * (max(gains.values()) - 1) else "wrong"


def test_hardly_any_stage_is_named_wrongly():
    # Guards: 11 of these 200 jobs were named wrongly, for a gain whose blocks happened to agree, and 63 rightly.
    found = Counter(judge(seed) for seed in range(1000, 1000 + JOBS))
    assert found["wrong"] <= 0.02 * JOBS
    assert found["right"] >= 0.25 * JOBS
