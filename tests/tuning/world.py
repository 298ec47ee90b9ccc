"""A tuning in invented time: lanes whose speed is known for every choice of settings."""

import math
import random
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import torch
from torch import nn
from torch.utils.data import TensorDataset

from bottleneck.errors import MeasurementError
from bottleneck.job.pipeline import Pipeline
from bottleneck.results.evidence import ExperimentUsage, LoadedBatches, Utilisation
from bottleneck.results.records import Block
from bottleneck.tuner.change import Change
from bottleneck.tuner.changes import choose
from bottleneck.tuner.record import conclude
from bottleneck.tuner.session import TuningSession
from tests.support.clock import FakeClock
from tests.support.results_factory import make_device_bound_result, make_result


class World:
    """Lanes in invented time: the slower of loading and stepping decides."""

    def __init__(self, load_s=0.004, step_s=0.001, noise=0.01, start_s=0.5, busy=lambda: 0.0, lucky_until_s=0.0):
        self.clock = FakeClock()
        self.load_s, self.step_s, self.noise, self.start_s = load_s, step_s, noise, start_s
        self.random = random.Random(1)
        self.open = []
        self.lucky_until_s = lucky_until_s
        # How many cores others use.
        self.others = SimpleNamespace(start=lambda: None, stop=busy)
        self.most_open = 0
        self.first_pace_s = None
        self.turns = Counter()
        self.lane = Lane
        self.refused = None
        """Opening a lane of such a pipeline fails."""
        self.failing = ()
        """Turns that fail, such as ("job", 3) for the third block of the unchanged job."""
        self.ranks = None
        """Ranks of the job, each of which has a separate world."""

    def opener(self, pipeline, budget_s, *, whole_epochs):
        self.clock.advance(self.start_s)
        if self.refused is not None and self.refused(pipeline):
            raise MeasurementError("The train step raised: CUDA out of memory.")
        if self.ranks is not None:
            self.ranks.begin_steps()
        lane = self.lane(self, pipeline)
        if whole_epochs:
            lane.samples = len(pipeline.dataset)
            self.clock.advance(lane.samples * lane.pace_s)
        self.first_pace_s = self.first_pace_s or lane.pace_s
        self.open.append(lane)
        self.most_open = max(self.most_open, len(self.open))
        return lane

    def pace_s(self, pipeline):
        loader = pipeline.make_loader()
        return max(self.load_s / max(1, loader.num_workers), self.bare_pace_s(pipeline))

    def bare_pace_s(self, pipeline):
        return self.step_s * (0.5 if getattr(pipeline.model, "quick", False) else 1)


class SlowBatches(World):
    """Batches that take a worker long, so that a visit takes longer than its block.

    Args:
        worker_s: What a worker takes for a batch.
        step_s: What the step takes for one.
    """

    def __init__(self, worker_s, step_s, noise=0.02):
        super().__init__(worker_s / 10, step_s / 10, noise, start_s=0.7 + worker_s + 3 * step_s)
        self.worker_s, self.lane = worker_s, SlowLane


class OneAtATime(SlowBatches):
    """Four workers or more, of which each waits for the others."""

    def pace_s(self, pipeline):
        return max(self.load_s / min(4, max(1, pipeline.make_loader().num_workers)), self.bare_pace_s(pipeline))


class Lane:
    first_batch_s, setup_s, peak_device_bytes, breaks_off = 0.1, 0.0, None, False

    def __init__(self, world, pipeline):
        self.world, self.pace_s = world, world.pace_s(pipeline)
        self.loss_is_finite = not getattr(pipeline.model, "not_finite", False)
        self.has_luck = bool(world.lucky_until_s) and hasattr(pipeline.model, "quick")
        self.step_s = 10 * self.pace_s
        self.bare_step_s = (
            5 * self.step_s if getattr(pipeline.model, "slow", False) else 10 * world.bare_pace_s(pipeline)
        )
        self.waits = self.pace_s > world.bare_pace_s(pipeline)
        self.waiting_share, self.samples = 1 - world.bare_pace_s(pipeline) / self.pace_s, 1000

    def block(self, number):
        whose = "job" if self.pace_s == self.world.first_pace_s else "changed"
        self.world.turns[whose] += 1
        if (whose, self.world.turns[whose]) in self.world.failing:
            raise MeasurementError("The dataset raised at index 777.")
        luck = (0.7 if self.world.clock() < self.world.lucky_until_s else 1.05) if self.has_luck else 1.0
        seconds = self.samples * self.pace_s * luck * math.exp(self.world.random.gauss(0, self.world.noise))
        self.world.clock.advance(1.2 * seconds)
        return Block(number, self.samples, seconds, self.samples // 10)

    def bare_step(self):
        seconds = self.bare_step_s * math.exp(self.world.random.gauss(0, self.world.noise))
        self.world.clock.advance(seconds)
        return seconds

    def close(self):
        self.world.open.remove(self)


class SlowLane(Lane):
    """Plans its blocks as a running lane does; before each, workers make what was thrown away at the switch."""

    def __init__(self, world, pipeline):
        super().__init__(world, pipeline)
        self.workers = max(1, pipeline.make_loader().num_workers)
        batches = max(math.ceil(min(2.0, max(0.4, 8 * self.step_s)) / self.step_s), min(self.workers, 4))
        if self.waits:
            batches = self.workers * math.ceil(batches / self.workers)
        self.samples, self.first_batch_s = 10 * batches, 0.5 + world.worker_s

    def block(self, number):
        self.world.clock.advance(2.3 * self.world.worker_s)
        return super().block(number)


def diagnosed(workers=1, state="input_bound", cores=(0.2, 0.3), **batches):
    """The diagnosis of a job, as far as a tuning looks at it.

    Args:
        workers: Of its loader.
        state: Of its verdict.
        cores: That the main process and all workers keep busy.
        batches: Facts about what workers make.
    """
    made = make_device_bound_result() if state != "input_bound" else make_result()
    usage = ExperimentUsage(name="raw", mode="coupled", cores_main=cores[0], cores_workers=cores[1])
    evidence = replace(
        made.evidence, utilisation=Utilisation(experiments=(usage,)), loaded_batches=LoadedBatches(count=99, **batches)
    )
    verdict = replace(made.verdict, state=state)
    return replace(made, evidence=evidence, verdict=verdict, pipeline={"num_workers": workers})


def job(**fields):
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    dataset = TensorDataset(torch.rand(400, 3), torch.randint(0, 2, (400,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = {"dataset": dataset, "model": model, "loss_fn": nn.CrossEntropyLoss(), "optimizer": optimizer}
    return Pipeline(**{**given, "batch_size": 10, "num_workers": 1, "device": "cpu", **fields})


def quicker_model(pipeline):
    model = nn.Sequential(pipeline.model)
    model.quick = True
    return pipeline.replace(model=model)


QUICKER = Change("quicker_model", quicker_model, on="step", line="model = quicker(model)")


def tuned(
    world,
    names=("num_workers",),
    budget_s=300.0,
    before=None,
    pipeline=None,
    left_as_found=nullcontext,
    in_script=False,
):
    """Tune, and return the record and the session."""
    session = tuning_of(world, names, budget_s, before, pipeline, left_as_found)
    try:
        session.run()
    finally:
        assert world.open == []
        session.record = conclude(session.found, session.best, {}, {})
    return session.record, session


def tuning_of(world, names, budget_s=300.0, before=None, pipeline=None, left_as_found=nullcontext, in_script=False):
    given = pipeline or job()
    told, diagnosed_s = [], []

    def diagnose(pipeline, budget_s):
        world.clock.advance(budget_s)
        diagnosed_s.append(budget_s)
        return before or make_result()

    session = TuningSession(
        given, choose(list(names)), budget_s, diagnose=diagnose, tell=told.append, opener=world.opener,
        clock=world.clock if world.ranks is None else world.ranks.clock, left_as_found=left_as_found,
        others=world.others, ranks=world.ranks, in_script=in_script,
    )  # fmt: skip
    session.told, session.diagnosed_s = told, diagnosed_s
    return session
