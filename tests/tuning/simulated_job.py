"""A job whose speed is known for every choice of settings, in invented time."""

import math
import random
from dataclasses import dataclass, field

from bottleneck.results.records import Block
from bottleneck.tuning.change import Change


@dataclass
class SimulatedJob:
    """Loads with so many workers while it trains: the slower of the two decides.

    A pipeline is a plain dict of settings here.
    """

    load_s: float = 0.08
    step_s: float = 0.02
    cores: int = 4
    contention: float = 0.0
    """By how much each worker beyond the cores slows all of them down."""
    noise: float = 0.01
    seed: int = 0
    seconds_spent: float = field(default=0.0, init=False)

    def __post_init__(self):
        self._random = random.Random(self.seed)

    def pace_s(self, pipeline):
        """The time of a sample."""
        workers = pipeline.get("num_workers", 1)
        crowd = 1 + self.contention * max(0, workers - self.cores)
        load_s = self.load_s * crowd * pipeline.get("load", 1.0) / max(1, workers)
        step_s = self.step_s * pipeline.get("step", 1.0)
        return (load_s + step_s if workers == 0 else max(load_s, step_s)) * pipeline.get("all", 1.0)

    def block(self, pipeline, number, samples=100):
        seconds = samples * self.pace_s(pipeline) * math.exp(self._random.gauss(0, self.noise))
        self.seconds_spent += seconds
        return Block(number, samples, seconds, 10)


def factor(name, key, by, **fields):
    """A change that multiplies a time of the simulated job."""
    return Change(name, lambda pipeline: {**pipeline, key: pipeline.get(key, 1.0) * by}, **fields)
