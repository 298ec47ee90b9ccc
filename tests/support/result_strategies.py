"""Hypothesis strategies for Result records: everything that the contract allows, not only what is likely."""

from __future__ import annotations

from hypothesis import strategies as st

from bottleneck.results.evidence import (
    Contention,
    Evidence,
    LineSeen,
    LoaderFacts,
    RanksTogether,
    SourcePlace,
    Stalls,
    Straggler,
    Sync,
    TransformSeen,
    Utilisation,
)
from bottleneck.results.records import (
    SCHEMA_VERSION,
    Advice,
    Block,
    Cost,
    Experiment,
    Interval,
    Rank,
    RankExperiment,
    Rate,
    Result,
    Stage,
    Tool,
    Verdict,
    Warning,
    Without,
)
from tests.support.results_factory import COUPLED_S_PER_BATCH, make_empty_result
from tests.support.results_factory import STAGES as _STAGES

NAMES = st.one_of(
    st.sampled_from(["device", "host", "raw", "augment", "load", "before_augment", "数据增强", "🐌 decode"]),
    st.text(max_size=20),
)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
AMOUNTS = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
COUNTS = st.integers(min_value=0, max_value=10**12)
FINDINGS = st.sampled_from(["real", "within_noise", "undecided"])
STATES = st.sampled_from(["input_bound", "device_bound", "undecided"])

INTERVALS = st.builds(Interval, NUMBERS, NUMBERS, NUMBERS)
BLOCKS = st.builds(
    Block,
    round=COUNTS,
    samples=COUNTS,
    seconds=AMOUNTS,
    batches=COUNTS,
    first_half_seconds=st.none() | AMOUNTS,
    device_clock_hz=st.none() | AMOUNTS,
    collecting_s=st.none() | AMOUNTS,
)
RATES = st.builds(Rate, AMOUNTS, NUMBERS, NUMBERS, AMOUNTS, st.lists(BLOCKS, max_size=3).map(tuple))
FREE_FORM = st.dictionaries(
    st.text(max_size=10),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**60), 2**60) | NUMBERS | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    ),
    max_size=4,
)


def tuples_of(items: st.SearchStrategy, max_size: int = 4) -> st.SearchStrategy:
    """Tuples, as records hold them."""
    return st.lists(items, max_size=max_size).map(tuple)


EXPERIMENTS = st.builds(
    Experiment, NAMES, st.booleans(), st.none() | st.text(max_size=30), st.none() | RATES, st.none() | RATES
)
STAGES = st.builds(
    Stage,
    NAMES,
    st.none() | NAMES,
    NAMES,
    *([st.none() | INTERVALS] * 4),
    FINDINGS,
    st.none() | AMOUNTS,
    st.none() | AMOUNTS,
)
VERDICTS = st.builds(
    Verdict,
    STATES,
    st.none() | NAMES,
    tuples_of(NAMES),
    st.none() | INTERVALS,
    st.none() | INTERVALS,
    st.text(max_size=200),
    st.none() | COUNTS,
    straggler=st.none() | COUNTS,
)
RANKS = st.builds(
    Rank,
    COUNTS,
    NAMES,
    NAMES,
    *([st.none() | COUNTS] * 5),
    tuples_of(st.builds(RankExperiment, NAMES, st.none() | AMOUNTS, st.none() | AMOUNTS, tuples_of(BLOCKS, 1)), 3),
    *([st.none() | AMOUNTS] * 4),
    st.none() | NAMES,
    st.none() | INTERVALS,
)
RANKS_TOGETHER = st.builds(
    RanksTogether,
    world=st.none() | COUNTS,
    hosts=st.none() | COUNTS,
    backend=st.none() | NAMES,
    sync=st.builds(Sync, cost_s_per_batch=st.none() | NUMBERS, gain_if_free=st.none() | INTERVALS),
    sync_reason=st.none() | st.text(max_size=30),
    straggler=st.none()
    | st.builds(
        Straggler,
        rank=COUNTS,
        host=NAMES,
        device=NAMES,
        stage=st.none() | NAMES,
        gain=st.none() | INTERVALS,
        ranks=st.lists(COUNTS, max_size=12).map(tuple),
    ),
    contention=st.builds(Contention, ratio=st.none() | INTERVALS, what=st.none() | NAMES),
)
ADVICE = st.builds(
    Advice,
    NAMES,
    st.none() | NAMES,
    *([st.text()] * 3),
    FREE_FORM,
    st.none() | INTERVALS,
    st.sampled_from([None, "measured", "estimated"]),
)
EVIDENCE = st.builds(
    Evidence,
    first_batch_s=st.none() | NUMBERS,
    receiving_s_per_batch=st.none() | st.integers(-(2**53), 2**53) | NUMBERS,
    stalls=st.builds(Stalls, count=st.none() | COUNTS, lost_share=st.none() | NUMBERS),
    loader=st.builds(LoaderFacts, transform_modules=st.dictionaries(st.text(), st.text(), max_size=3)),
    transforms=tuples_of(st.builds(TransformSeen, name=st.none() | NAMES, share=st.none() | NUMBERS)),
    transforms_note=st.none() | st.text(),
    lines=tuples_of(
        st.builds(
            LineSeen,
            stage=st.none() | NAMES,
            path=st.none() | st.text(),
            line=st.none() | COUNTS,
            code=st.none() | st.text(),
            share=st.none() | NUMBERS,
            waiting_share=st.none() | NUMBERS,
            library=st.none() | st.booleans(),
        )
    ),
    source=tuples_of(
        st.builds(SourcePlace, name=NAMES, file=st.text(), line=COUNTS, text=st.text(), begin=COUNTS, end=COUNTS), 2
    ),
    utilisation=st.builds(Utilisation, gpu_other_processes=st.none() | COUNTS, missing=tuples_of(st.text())),
    serving_s_per_batch=st.none() | INTERVALS,
    ranks=RANKS_TOGETHER,
)
RESULTS = st.builds(
    Result,
    schema_version=st.just(SCHEMA_VERSION),
    tool=st.builds(Tool, st.text(max_size=10), st.text(max_size=10)),
    created=st.text(max_size=20),
    environment=FREE_FORM,
    pipeline=FREE_FORM,
    experiments=tuples_of(EXPERIMENTS),
    without=tuples_of(st.builds(Without, NAMES, st.none() | RATES), 2),
    stages=tuples_of(STAGES),
    verdict=VERDICTS,
    advice=tuples_of(ADVICE, 2),
    evidence=EVIDENCE,
    warnings=tuples_of(st.builds(Warning, NAMES, st.text()), 2),
    cost=st.builds(Cost, AMOUNTS, COUNTS, COUNTS, COUNTS),
    ranks=tuples_of(RANKS, 3),
)

# --- results of a ladder, with numbers of any size ---------------------------------------------------------

_RUNGS = tuple(COUPLED_S_PER_BATCH)
_SECONDS = st.floats(1e-6, 1e3)


@st.composite
def _noisy(draw, around: st.SearchStrategy) -> Interval:
    """An interval around its estimate, as wide as a short run on a busy machine makes it."""
    estimate, below, above = draw(around), draw(st.floats(0, 10)), draw(st.floats(0, 10))
    size = max(abs(estimate), 1e-6)
    return Interval(estimate, estimate - below * size, estimate + above * size)


@st.composite
def _rates(draw) -> Rate:
    step_s = draw(_SECONDS)
    speed = draw(_noisy(st.just(32 / step_s)))
    return Rate(speed.estimate, max(0.0, speed.low), speed.high, step_s, ())


@st.composite
def ladders(draw) -> Result:
    """A result whose experiments and stages have their names, and whose numbers need not agree with each other."""
    missing = draw(st.sets(st.sampled_from(_RUNGS[:-1]), max_size=2))
    experiments = tuple(
        Experiment(name, True, None, None if name in missing else draw(_rates()), draw(st.none() | _rates()))
        for name in _RUNGS
    )
    times, gains = _noisy(st.floats(-1.0, 1e3)), _noisy(st.floats(0.01, 50))
    stages = tuple(
        Stage(
            name,
            _RUNGS[at - 1] if at else None,
            _RUNGS[at],
            draw(st.none() | times),
            draw(st.none() | times),
            None,
            draw(st.none() | gains) if at else None,
            draw(FINDINGS),
        )
        for at, name in enumerate(_STAGES)
    )
    efficiency, headroom = draw(st.none() | _noisy(st.floats(0.01, 1))), draw(st.none() | _noisy(st.floats(1, 50)))
    state, named = draw(st.sampled_from([("input_bound", n) for n in _STAGES[1:]] + [("device_bound", "compute")]))
    contributors = draw(tuples_of(st.sampled_from(_STAGES[1:]), 2))
    return make_empty_result(
        environment=draw(st.sampled_from([{"device": "cpu"}, {"device": "cuda:0"}])),
        pipeline=draw(st.sampled_from([{"num_workers": 0}, {"num_workers": 2}])),
        experiments=experiments,
        stages=stages,
        verdict=Verdict(state, named, contributors, efficiency, headroom, "The verdict."),
        cost=Cost(1.0, 1, 1, 1),
    )
