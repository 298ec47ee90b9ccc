"""A job whose time is known for any number of workers, and what a diagnosis of it would measure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bottleneck.analysis.analyse import analyse
from bottleneck.results.records import Result
from tests.analysis.simulated import Job, measure


@dataclass(frozen=True)
class Model:
    """Times of a batch.

    Attributes:
        step_s: The train step alone.
        load_s: Loading, in one process.
        handoff_s: Of the hand-off, in a worker; the main process takes half as long.
        cores: Of the machine.
        on_cpu: The step computes with a thread on each core; else elsewhere.
        slowdown: A step on the CPU whose threads share cores with workers takes so many times as long.
        waits: Loading is waiting, which takes no core.
        seen_cores: The cores that the step is seen to keep busy; None: as many as it uses. Beside other load it gets
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

    def seconds(self, workers: int) -> float:
        """The job's time per batch."""
        if not workers:
            return self.step_s + self.load_s
        slow = self.slowdown if self.on_cpu else 1.0
        used_s = self.step_s * (self.cores if self.on_cpu else 0.1) + self._busy_s + 1.5 * self.handoff_s
        return max(self.step_s * slow + self.handoff_s / 2, self.loader_s(workers), used_s / self.cores)

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
        """What is measured with so many workers."""
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
        busy_s = self.load_s / max(workers, 1)
        spans = tuple(replace(s, wall_s_per_batch=busy_s) if s.name == "load" else s for s in measured.stages)
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
        found = {"utilisation": {"cores": cores, "experiments": [row, device], "workers": {}}, **crowd}
        return found

    def diagnosis(self, workers: int) -> Result:
        """The whole analysis of it."""
        return analyse(self.measurement(workers))
