"""Advice on the loader fits the job: its settings, its cores, its gains; and followed, it never leads back."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import pytest
import torch
from torch.utils.data import Subset, TensorDataset

from bottleneck.analysis.analyse import analyse
from bottleneck.analysis.edits.edits import claims_at_most
from bottleneck.results.evidence import LoadedBatches
from bottleneck.results.records import Result
from tests.analysis.rule_case import advice_of, held_by, result_of
from tests.analysis.rule_case import advice_with_workers as advice
from tests.analysis.rule_cases.general import _COPY
from tests.analysis.rule_cases.loading import _TINY
from tests.analysis.simulated import AUGMENT_BOUND, Job, measure
from tests.analysis.test_every_rule import CASES, names
from tests.support.results_factory import evidence_of

# --- settings and names of the user's -------------------------------------------------------------------------


_OF_WORKERS = ("worker-affinity", "validation")
"""Given by what workers were seen to do, or about another loader."""
_CASES = [case for case in CASES if case.id not in _OF_WORKERS]


@pytest.mark.parametrize("case", _CASES, ids=names(_CASES))
def test_no_setting_of_a_loader_is_advised_where_there_is_none(case):
    of_a_stream = {"loader": None, "batch_size": None, "num_workers": 0}
    job = replace(case.deserves, pipeline={**case.deserves.pipeline, **of_a_stream})
    for item in result_of(job).advice:
        told = f"{item.title} {item.why} {item.how}"
        assert not [word for word in ("DataLoader", "num_workers", "prefetch_factor") if word in told], told


@pytest.mark.parametrize("kind", [Subset, TensorDataset, torch.utils.data.ConcatDataset])
def test_a_dataset_of_pytorchs_is_not_the_users_code(kind):
    job = replace(_TINY, pipeline={**_TINY.pipeline, "dataset": kind.__name__})
    how = advice_of(job)["fetch-in-batches"].how
    assert "let your dataset.__getitem__" in how
    assert kind.__name__ not in how


# --- workers: advice followed to the letter, in jobs whose time is known for any number of them ---------------


@dataclass(frozen=True)
class Model:
    """Times of a batch.

    Attributes:
        step_s: The train step alone.
        load_s: Loading, in one process.
        handoff_s: Of the hand-off, in a worker; the main process takes half as long.
        cores: Of the machine.
        on_cpu: The step computes with a thread on each core; else elsewhere.
        slowdown: A step on the CPU whose threads share cores with workers takes this many times as long.
        waits: Loading is waiting, which takes no core.
        seen_cores: The cores that the step is seen to keep busy; None: as many as it uses. With other load it gets
            fewer.
    """

    step_s: float
    load_s: float
    handoff_s: float
    cores: int
    on_cpu: bool
    slowdown: float = 2.5
    waits: bool = False
    seen_cores: float | None = None

    def seconds(self, workers: int, threads: int | None = None) -> float:
        """The job's time per batch, with as many threads of a step on the CPU as cores, or fewer."""
        if not workers:
            return self.step_s + self.load_s
        used_s = self.step_s * (self.cores if self.on_cpu else 0.1) + self._busy_s + 1.5 * self.handoff_s
        step_s = self.step_s * (self.slowdown if self.on_cpu else 1.0)
        if threads is not None:  # those that are left have a core each
            step_s = self.step_s * self.cores / threads
        return max(step_s + self.handoff_s / 2, self.loader_s(workers), used_s / self.cores)

    @property
    def _busy_s(self) -> float:
        return 0.05 * self.load_s if self.waits else self.load_s

    def loader_s(self, workers: int) -> float:
        """The loader alone."""
        if not workers:
            return self.load_s
        atonce = workers if self.waits else min(workers, self.cores)
        return max((self.load_s + self.handoff_s) / atonce, self.handoff_s / 2)

    def measurement(self, workers: int) -> Result:
        """Return the measurement with this number of workers."""
        raw_s = self.seconds(workers)
        coupled, drained = {"device": self.step_s}, {}
        if workers:
            coupled["after_collate"] = min(self.step_s + self.handoff_s / 2, raw_s)
            drained["after_collate"] = self.handoff_s / workers
        without_load_s = coupled.get("after_collate", self.step_s)
        without = {"load": without_load_s} | ({"handoff": max(self.step_s, self.load_s / workers)} if workers else {})
        job = Job(
            coupled | {"raw": raw_s},
            drained | {"raw": self.loader_s(workers)},
            without,
            pipeline={"num_workers": workers, "batch_size": 32, "persistent_workers": True},
            environment={"cpu_cores_available": self.cores, "device": "cpu" if self.on_cpu else "cuda:0",
                         "torch_threads": self.cores},
            evidence=self._evidence(workers, raw_s),
        )  # fmt: skip
        measured = measure(job, noise=0.003)
        each = max(workers, 1)
        clocks = {"wall_s_per_batch": self.load_s / each, "cpu_s_per_batch": self._busy_s / each}
        spans = tuple(replace(s, **clocks) if s.name == "load" else s for s in measured.stages)
        return replace(measured, stages=spans)

    def _evidence(self, workers: int, raw_s: float) -> dict[str, object]:
        step_cores = self.cores if self.on_cpu else 0.1
        main = (step_cores * self.step_s + (0 if workers else self._busy_s)) / raw_s
        loading = (self._busy_s + self.handoff_s) / raw_s if workers else 0.0
        row = {"name": "raw", "mode": "coupled", "cores_main": min(main, self.cores), "cores_workers": loading}
        row["cores_busy"] = min(self.cores, row["cores_main"] + loading)
        seen_cores = step_cores if self.seen_cores is None else self.seen_cores
        device = {"name": "device", "mode": "coupled", "cores_main": seen_cores, "cores_workers": 0.0}
        crowd = {"core_wait_per_cpu_s": 0.9} if workers > self.cores and not self.waits else {}
        cores = {"usable": self.cores, "allowed": self.cores, "quota": None}
        return {"utilisation": {"cores": cores, "experiments": [row, device], "workers": {}}, **crowd}

    def diagnosis(self, workers: int) -> Result:
        """The whole analysis of it."""
        return analyse(self.measurement(workers))


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
    """Return the number of workers that the first advice about it proposes, with that advice; None if none does."""
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


def test_more_workers_up_to_what_the_device_takes_or_the_cores_allow():
    many, few = (advice(AUGMENT_BOUND, environment={"cpu_cores_available": n})["more-workers"] for n in (64, 6))
    assert many.how.endswith("--set num_workers=12")  # 4 x 24.6 / 9.4 ms, and a tenth to spare
    assert few.how.endswith("--set num_workers=6")
    assert "not enough" in few.why
    assert "not enough" not in many.why
    script = advice(AUGMENT_BOUND, environment={"cpu_cores_available": 6}, pipeline={"source": "script"})
    assert script["more-workers"].how == "DataLoader(..., num_workers=6)"


@pytest.mark.parametrize("environment", [{}, {"cpu_cores_available": 4}])
def test_no_more_workers_without_cores_for_them_or_for_a_copy(environment):
    assert "more-workers" not in advice(AUGMENT_BOUND, environment=environment)
    assert "more-workers" not in advice(_COPY, environment={"cpu_cores_available": 64})


def test_a_batch_that_is_made_faster_than_it_is_handed_over_gets_no_workers():
    assert next_workers(Model(1e-7, 31e-6, 0.0006, 16, on_cpu=False).diagnosis(0)) is None


def test_a_gain_is_not_promised_beyond_the_cores():
    _, advice = next_workers(Model(0.001, 0.1, 0.0005, 2, on_cpu=False).diagnosis(1))
    assert advice.gain.estimate <= 2


def test_uneven_batches_are_promised_less():
    # Their queue runs empty now and then, however many batches the workers make on average.
    promised = {}
    for cv in (0.05, 1.5):
        job = Model(0.02, 0.1, 0.0005, 8, on_cpu=False).measurement(2)
        job = replace(job, evidence=replace(job.evidence, loaded_batches=LoadedBatches(cv=cv)))
        promised[cv] = advice_of(job)["more-workers"].gain.estimate
    assert promised[1.5] < 0.9 * promised[0.05]


def test_a_step_on_the_cpu_that_got_fewer_cores_than_threads_needs_them_all_the_same():
    job = Model(0.005, 0.02, 0.0005, 2, on_cpu=True, seen_cores=0.9)

    assert next_workers(job.diagnosis(0)) is None
    assert next_workers(job.diagnosis(1)) is None


def test_a_job_whose_step_is_short_gets_workers_and_leaves_them_cores():
    # Guards: num_workers=0 on two cores, where two workers made a job 1.7x as fast, and none was ever advised.
    job = Model(0.0008, 0.0177, 0.0005, 2, on_cpu=True)
    [given] = [advice for advice in job.diagnosis(0).advice if advice.id == "use-workers"]
    workers, threads = given.evidence["workers"], given.evidence["torch_threads"]
    assert (workers, threads) == (2, 1)
    assert given.how.splitlines() == [
        "torch.set_num_threads(1)  # in the main process", "DataLoader(..., num_workers=2)",
    ]  # fmt: skip
    assert 1.5 < given.gain.estimate <= BEYOND * job.seconds(0) / job.seconds(workers, threads)
    assert claims_at_most(given)


def test_a_step_that_takes_all_cores_for_long_leaves_none_to_workers():
    for job in (Model(0.02, 0.02, 0.0005, 2, on_cpu=True), Model(0.005, 0.02, 0.0005, 1, on_cpu=True)):
        assert "use-workers" not in {advice.id for advice in job.diagnosis(0).advice}


@pytest.mark.parametrize("on_cpu", [False, True])
@pytest.mark.parametrize("cores", [1, 2])
def test_workers_that_wait_need_no_core_of_their_own(cores, on_cpu):
    # Guards: three workers that sleep, on two cores, were told that there is no core for another.
    job = Model(0.002, 0.1, 0.0005, cores, on_cpu=on_cpu, waits=True)
    for present, id in ((0, "use-workers"), (3, "more-workers")):
        [given] = [advice for advice in job.diagnosis(present).advice if advice.id == id]
        wanted = given.evidence.get("workers") or given.evidence["proposed"]["num_workers"]
        realised = job.seconds(present) / job.seconds(wanted, given.evidence.get("torch_threads"))
        assert wanted > 4 * cores
        assert 2 < given.gain.estimate <= realised * BEYOND


def tried_job(*ways, present=0, threads=2, noise=0.002):
    """A job of 20 ms a batch that was tried in other ways, each with its time for a batch [s]."""

    def blocks(seconds, period):
        noisy = (10 * seconds * (1 + noise * (n // period % 2)) for n in range(4))
        return [{"round": n, "samples": 320, "batches": 10, "seconds": took} for n, took in enumerate(noisy)]

    trial = {
        "threads": threads,
        "as_it_is": blocks(0.02, 1),
        "ways": [{"num_workers": w, "threads": t, "blocks": blocks(seconds, 2)} for w, t, seconds in ways],
    }
    job = Model(0.001, 0.019, 0.0005, 2, on_cpu=True).measurement(present)
    evidence = replace(job.evidence, workers_trial=evidence_of({"workers_trial": trial}).workers_trial)
    return replace(job, evidence=evidence)


def tried(*ways, present=0, **options):
    """Return the advice for it."""
    return advice_of(tried_job(*ways, present=present, **options)).get("more-workers" if present else "use-workers")


def test_what_was_tried_is_advised_with_its_own_gain():
    given = tried((2, 2, 0.016), (2, 1, 0.0158))
    assert given.evidence["proposed"] == {"num_workers": 2}
    assert given.title == "Load in 2 worker processes"
    assert given.gain.estimate == pytest.approx(1.25, rel=0.01)
    assert (given.gain_basis, claims_at_most(given)) == ("measured", False)
    assert "4 pairs of blocks" in given.why


def test_fewer_threads_of_the_step_are_advised_where_they_pay_for_themselves():
    given = tried((2, 2, 0.016), (2, 1, 0.011))
    assert given.title == "Load in 2 worker processes, with 1 thread for the train step"
    assert given.gain.estimate == pytest.approx(1.82, rel=0.01)
    assert "proposed" not in given.evidence
    assert given.how.startswith("torch.set_num_threads(1)")
    more = tried((2, 1, 0.011), present=1)
    assert more.title == "Raise num_workers from 1 to 2, with 1 thread for the train step"


@pytest.mark.parametrize("seconds", [0.0195, 0.03])
def test_what_was_tried_in_vain_is_not_advised(seconds):
    assert tried((2, 2, seconds)) is None
    assert tried((2, 2, 0.018), noise=0.8) is None


def test_workers_of_which_a_job_has_none_are_among_the_first_two():
    job = tried_job((2, 2, 0.018))
    line = {
        "stage": "load",
        "path": "a.py",
        "line": 3,
        "function": "f",
        "code": "f(x)",
        "share": 0.99,
        "library": False,
    }
    again = {"samples": 8, "stages": ["load"], "bytes_per_sample": 100.0, "seconds_per_sample": 0.0006}
    seen = evidence_of({"lines": [line], "repeated": again})
    job = replace(
        job,
        evidence=replace(job.evidence, lines=seen.lines, repeated=seen.repeated),
        pipeline={**job.pipeline, "dataset_length": 1000},
        environment={**job.environment, "memory_available_bytes": 1e10},
    )
    assert list(advice_of(job))[:3] == ["cache-dataset", "use-workers", "costliest-line"]


# --- streams --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shards", "proposed"), [(None, 8), (6, 6), (4, None)])
def test_no_more_workers_are_advised_than_a_stream_has_shards(shards, proposed):
    job = replace(held_by("load", slow_s=0.03), environment={"cpu_cores_available": 8, "device": "cuda:0"})
    found = analyse(measure(replace(job, evidence={"loader": {"iterable": True, "shards": shards}})))
    told = [advice.evidence["proposed"]["num_workers"] for advice in found.advice if advice.id == "more-workers"]
    assert told == ([] if proposed is None else [proposed])
