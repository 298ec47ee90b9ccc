"""Hypothesis strategies for Result records: everything that the contract allows, likely or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from bottleneck.results.evidence import Evidence
from bottleneck.results.records import SCHEMA_VERSION, Cost, Experiment, Interval, Rate, Result, Stage, Verdict
from bottleneck.results.values import Amount, Count, Number
from tests.support.results_factory import COUPLED_S_PER_BATCH, make_empty_result
from tests.support.results_factory import STAGES as _STAGES

NAMES = st.one_of(
    st.sampled_from(["device", "host", "raw", "augment", "load", "before_augment", "数据增强", "🐌 decode"]),
    st.text(max_size=20),
)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
FINDINGS = st.sampled_from(["real", "within_noise", "undecided"])
FREE_FORM = st.dictionaries(
    st.text(max_size=10),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**60), 2**60) | NUMBERS | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    ),
    max_size=4,
)
_SIMPLE = {
    str: NAMES,
    bool: st.booleans(),
    type(None): st.none(),
    Number: NUMBERS,
    Amount: st.floats(min_value=0, allow_nan=False, allow_infinity=False),
    Count: st.integers(min_value=0, max_value=10**12),
}


def tuples_of(items: st.SearchStrategy, max_size: int = 2) -> st.SearchStrategy:
    """Tuples, as records hold them."""
    return st.lists(items, max_size=max_size).map(tuple)


def values_of(hint: Any) -> st.SearchStrategy:
    """Return a strategy for a field of a record, by its type."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if origin is Annotated:
        return st.integers(-(2**53), 2**53)
    if origin in (Union, UnionType):
        return st.one_of(map(values_of, args))
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple:
        return tuples_of(values_of(args[0]))
    if origin is Mapping:
        return FREE_FORM if args[1] is Any else st.dictionaries(NAMES, values_of(args[1]), max_size=3)
    return records_of(hint)


def records_of(kind: type, *names: str, **given: st.SearchStrategy) -> st.SearchStrategy:
    """Records of a kind. Of the fields only those are drawn that are named, or all; `given` says what some hold."""
    hints = get_type_hints(kind, include_extras=True)
    drawn = [name for name in names or (field.name for field in fields(kind)) if name not in given]
    return st.deferred(lambda: st.builds(kind, **{name: values_of(hints[name]) for name in drawn}, **given))


_SHOWN = "first_batch_s", "receiving_s_per_batch", "stalls", "transforms", "transforms_note", "lines", "source"
EVIDENCE = records_of(Evidence, *_SHOWN, "device_time", "loader", "utilisation", "serving_s_per_batch", "ranks")
RESULTS = records_of(Result, schema_version=st.just(SCHEMA_VERSION), evidence=EVIDENCE)

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
