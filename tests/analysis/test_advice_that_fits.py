"""Advice fits the job: its data, its loader, its gains, and it leads nowhere back."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, Subset, TensorDataset

from bottleneck.analysis.advice.case import Case
from bottleneck.analysis.advice.edits import claims_at_most
from bottleneck.job.pipeline import Pipeline
from bottleneck.measure.ledger import describe_pipeline
from bottleneck.results.records import Interval
from bottleneck.script.iterators import stream_loader
from tests.analysis.held_jobs import held_by, transform
from tests.analysis.rule_case import result_of
from tests.analysis.rule_cases.loading import _TINY
from tests.analysis.test_every_rule import CASES, names
from tests.analysis.worker_model import Model

# --- A remedy speaks of what the run saw: no hint about images in a job without any -------------------------


IMAGES = re.compile(r"image|pixel|jpe?g|crop|jitter|decode small|draft|resize|torchvision", re.IGNORECASE)
TEXT = {
    "payload": {
        "bytes": 100_000,
        "tensor_count": 2,
        "objects": 0,
        "tensors": [
            {"path": "['ids']", "shape": [32, 128], "dtype": "int64", "bytes": 32_768},
            {"path": "['mask']", "shape": [32, 1, 128, 128], "dtype": "bool", "bytes": 524_288},
        ],
        "savings": [],
    },
    "loader": {"decoded_pixels_per_sample": None, "used_pixels_per_sample": None},
}
STAGES = ("load", "augment", "collate", "handoff", "copy")


def said(job):
    return " ".join(f"{item.title} {item.why} {item.how}" for item in result_of(job).advice)


@pytest.mark.parametrize("device", ["cuda:0", "cpu"])
@pytest.mark.parametrize("held", STAGES)
def test_a_job_on_text_hears_nothing_of_images(held, device):
    heard = said(held_by(held, evidence=TEXT, environment={"device": device}, pipeline={"pin_memory": False}))
    assert heard
    assert not IMAGES.search(heard)


@pytest.mark.parametrize(
    "evidence",
    [
        {"transforms": [transform("transform", "Mixture", 0.1, stage="augment")]},
        {"payload": {"tensors": [{"path": "[0]", "shape": [32, 3, 224, 224], "dtype": "float32", "bytes": 1}]}},
        {"payload": {"tensors": [{"path": "[0]", "shape": [32, 224, 224, 3], "dtype": "uint8", "bytes": 1}]}},
        {"loader": {"decoded_pixels_per_sample": 1000.0}},
    ],
    ids=["transforms", "channels first", "channels last", "decoded"],
)
@pytest.mark.parametrize("held", ["load", "augment"])
def test_a_job_on_images_does(held, evidence):
    assert IMAGES.search(said(held_by(held, evidence=evidence)))


def test_the_dataset_the_functions_and_the_paths_are_the_users():
    evidence = {
        "loader": {"open_handles": [{"path": "self.inner.file", "type": "h5py.File"}], "fetches_batches": False}
    }
    assert "self.inner.file" in said(held_by("load", evidence=evidence))
    job = held_by(
        "collate", evidence={"payload": {"bytes": 1000, "objects": 500}}, pipeline={"collate_fn": "pack_words"}
    )
    assert "pack_words" in said(job)


# --- What a job gains where a part of a stage becomes free, for a loader whose time is known ----------------


def gain_of_part(part, *, device_s, loader_s, stage_s, cost_known=True):
    """The promise for a part of a stage of `stage_s`, in a loader of `loader_s` a step."""
    step_s = max(device_s, loader_s)
    free = Interval(*[step_s / max(device_s, loader_s - stage_s)] * 3)
    cost = Interval(stage_s, stage_s, stage_s) if cost_known else None
    stage = SimpleNamespace(name="augment", gain_if_free=free, cost_s_per_batch=cost, exposed_s_per_batch=None)
    case = SimpleNamespace(step_s=step_s, device_s=device_s, gain_of=lambda _: free.estimate)
    return Case.gain_of_part(case, stage, part)


@pytest.mark.parametrize("part", [0.1, 0.3, 0.5, 0.9, 1.0])
@pytest.mark.parametrize(("device_s", "loader_s", "stage_s"), [(0.010, 0.020, 0.018), (0.001, 0.020, 0.018)])
def test_it_is_what_the_loader_and_the_step_allow(part, device_s, loader_s, stage_s):
    # Guards: a transform whose removal made a job 1.73 times as fast was said to bring 1.35 at most.
    truth = loader_s / max(device_s, loader_s - part * stage_s)
    assert gain_of_part(part, device_s=device_s, loader_s=loader_s, stage_s=stage_s) == pytest.approx(truth)


def test_without_its_cost_it_goes_with_the_gain_of_the_whole_stage():
    half = gain_of_part(0.5, device_s=0.010, loader_s=0.020, stage_s=0.018, cost_known=False)
    assert half == pytest.approx(1 / (1 - 0.5 * 0.5))


def test_a_stage_that_holds_nothing_up_promises_nothing():
    assert gain_of_part(0.5, device_s=0.020, loader_s=0.010, stage_s=0.009) == 1.0


# --- Advice is about what the user has: no setting of a DataLoader that is ours, no class of Py -------------


def without_loader(case):
    """The same job, fed by a stream from the main process."""
    of_a_stream = {"loader": None, "batch_size": None, "num_workers": 0}
    return replace(case.deserves, pipeline={**case.deserves.pipeline, **of_a_stream})


_OF_WORKERS = ("worker-affinity",)
"""Given by what workers were seen to do."""
_CASES = [case for case in CASES if case.id not in _OF_WORKERS]


@pytest.mark.parametrize("case", _CASES, ids=names(_CASES))
def test_no_setting_of_a_loader_is_advised_where_there_is_none(case):
    for advice in result_of(without_loader(case)).advice:
        told = f"{advice.title} {advice.why} {advice.how}"
        assert not [word for word in ("DataLoader", "num_workers", "prefetch_factor") if word in told], told


def test_batches_from_anything_but_a_loader_are_described_as_such():
    job = Pipeline(dataset=[1], train_step=print)
    assert describe_pipeline(job, stream_loader([1, 2]))["loader"] is None
    assert "loader" not in describe_pipeline(job, DataLoader([1, 2]))


@pytest.mark.parametrize("kind", [Subset, TensorDataset, torch.utils.data.ConcatDataset])
def test_a_dataset_of_pytorchs_is_not_the_users_code(kind):
    told = {
        a.id: a.how for a in result_of(replace(_TINY, pipeline={**_TINY.pipeline, "dataset": kind.__name__})).advice
    }
    assert "let your dataset.__getitem__" in told["fetch-in-batches"]
    assert kind.__name__ not in told["fetch-in-batches"]


def test_a_dataset_of_the_users_is_named():
    assert "Rows.__getitem__" in {a.id: a.how for a in result_of(_TINY).advice}["fetch-in-batches"]


# --- Advice on workers, followed to the letter in jobs whose time is known for any number of th -------------


STEPS_S = (1e-6, 0.005)
LOADS_S = (31e-6, 0.005, 0.05)
HANDOFF_S = 0.0006
CORES = (2, 16)
MODELS = [
    Model(step_s, load_s, HANDOFF_S, cores, on_cpu, waits=waits)
    for step_s, load_s, cores, on_cpu, waits in itertools.product(STEPS_S, LOADS_S, CORES, (False, True), (False, True))
]
NOISE = 1.02
BEYOND = 1.25
"""Times the realised gain that an advice may promise, where it does not call its gain an upper bound."""


def next_workers(result):
    """The number of workers that the first advice about it proposes, with that advice; None where none does."""
    proposals = ((a.evidence.get("proposed", {}).get("num_workers"), a) for a in result.advice)
    return next((found for found in proposals if found[0] is not None), None)


def name(model):
    return "-".join(f"{value}" for value in vars(model).values())


@pytest.mark.parametrize("model", MODELS, ids=map(name, MODELS))
def test_no_advice_about_workers_makes_a_job_slower_and_none_leads_back(model):
    for begin in (0, 1, 4, 24):
        workers, seen = begin, {begin}
        while (found := next_workers(model.diagnosis(workers))) is not None:
            wanted, advice = found
            realised = model.seconds(workers) / model.seconds(wanted)
            assert realised > 1 / NOISE, (workers, wanted, advice.id)
            assert wanted not in seen, (begin, seen, wanted)
            if advice.gain is not None:
                assert claims_at_most(advice) or advice.gain.estimate <= BEYOND * realised, (workers, wanted, advice)
            seen.add(wanted)
            workers = wanted


def test_workers_that_help_are_advised_and_those_that_do_not_are_not():
    # Guards: a rule that never advises anything would pass the test above.
    accelerator = Model(0.01, 0.03, 0.0005, 8, on_cpu=False)
    wanted, advice = next_workers(accelerator.diagnosis(0))
    assert wanted == 4
    assert advice.gain.estimate == pytest.approx(accelerator.seconds(0) / accelerator.seconds(4), rel=0.05)
    assert claims_at_most(advice)
    assert next_workers(accelerator.diagnosis(1)) is not None

    assert next_workers(Model(0.005, 0.005, 0.0005, 2, on_cpu=True).diagnosis(0)) is None


def test_a_batch_that_is_made_faster_than_it_is_handed_over_gets_no_workers():
    assert next_workers(Model(1e-7, 31e-6, 0.0006, 16, on_cpu=False).diagnosis(0)) is None


def test_a_gain_is_not_promised_beyond_the_cores():
    waits = Model(0.001, 0.1, 0.0005, 2, on_cpu=False)
    advice = next_workers(waits.diagnosis(1))[1]

    assert advice.gain.estimate <= 2


def test_a_step_on_the_cpu_that_got_fewer_cores_than_threads_needs_them_all_the_same():
    job = Model(0.005, 0.02, 0.0005, 2, on_cpu=True, seen_cores=0.9)

    assert next_workers(job.diagnosis(0)) is None
    assert next_workers(job.diagnosis(1)) is None
