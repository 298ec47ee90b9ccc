"""Hypothesis strategies for Result records: everything that the contract allows, not only what is likely."""

from __future__ import annotations

from hypothesis import strategies as st

from bottleneck.results.evidence import Evidence, LoaderFacts, Stalls, StepSeen, TransformSeen, Utilisation
from bottleneck.results.records import (
    SCHEMA_VERSION,
    Advice,
    Block,
    Cost,
    Experiment,
    Interval,
    Rate,
    Result,
    Stage,
    Tool,
    Verdict,
    Warning,
    Without,
)

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
    steps=tuples_of(st.builds(StepSeen, wait_s=st.none() | NUMBERS, work_s=st.none() | NUMBERS)),
    loader=st.builds(LoaderFacts, transform_modules=st.dictionaries(st.text(), st.text(), max_size=3)),
    transforms=tuples_of(st.builds(TransformSeen, name=st.none() | NAMES, share=st.none() | NUMBERS)),
    transforms_note=st.none() | st.text(),
    utilisation=st.builds(Utilisation, samples=st.none() | COUNTS, missing=tuples_of(st.text())),
    serving_s_per_batch=st.none() | INTERVALS,
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
)
