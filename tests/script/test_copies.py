"""The copy of a batch in each experiment: by the described pipeline, or by a script's own loop."""

from torch.utils.data import default_collate

from bottleneck.measure import device as job_device
from bottleneck.measure.options import Loop, MeasureOptions
from tests.support.clock import FakeClock
from tests.support.sessions import UNDECIDED, pipeline_of, run

NO_COPY = "the loop was not seen to move it"


def collate(samples):
    return {"x": default_collate(samples), "where": "host"}


class Job:
    """Notes the device of each experiment's batches, and calls of the device: with a `to_device`, a CPU."""

    def __init__(self, monkeypatch, loop, writes=False):
        self.where, self.events, self._experiment, self._writes = {}, [], None, writes
        wait = lambda *_: lambda: self.events.append(("waited", self._experiment))  # noqa: E731
        monkeypatch.setattr(job_device, "make_synchronize", wait)
        clock = self.clock = FakeClock(50.0, per_reading_s=5e-4)
        pipeline = pipeline_of(
            train_step=self.step, to_device=self.to_device, batch_size=2, num_workers=0, collate_fn=collate
        )
        self.outcome = run(
            pipeline,
            MeasureOptions(budget_s=20.0, restore=False, loop=loop),
            lambda _: UNDECIDED,
            self.note,
            clock=clock,
        )
        assert self.outcome.failure is None

    def note(self, update):
        self._experiment = update.experiment

    def step(self, batch):
        self.clock.advance(0.010)
        self.where.setdefault(self._experiment, set()).add(batch["where"])
        if self._writes:
            batch["where"] = "device"

    def to_device(self, batch, _device):
        self.events.append(("copied", self._experiment))
        return {**batch, "where": "device"}

    def measured(self, *, on):
        """The experiments in which every batch that the step got was there."""
        return {name for name, where in self.where.items() if name is not None and where == {on}}


def test_a_loop_that_copies_by_itself_gets_the_batches_of_the_loader_in_all_experiments_but_device(monkeypatch):
    # Guards: our copy on the loop's stream, before the loop's prefetcher reads the batch on another.
    job = Job(monkeypatch, Loop(copies_itself=True))
    assert job.measured(on="device") == {"device", "without copy"}
    assert {"host", "raw"} < job.measured(on="host")
    assert "copy" in [span.name for span in job.outcome.measurement.stages]
    copied = [at for at, (what, _) in enumerate(job.events) if what == "copied"]
    # Whatever stream the loop reads in, the copy is done before.
    assert all(job.events[at + 1][0] == "waited" for at in copied)


def test_of_a_described_job_the_pipeline_copies_in_all_experiments(monkeypatch):
    job = Job(monkeypatch, Loop())
    assert job.measured(on="host") == set()
    assert {"device", "host", "raw"} < job.measured(on="device")


def test_where_the_loop_was_not_seen_to_copy_it_gets_the_batches_of_the_loader_everywhere(monkeypatch):
    job = Job(monkeypatch, Loop(copies_itself=True, not_copied=NO_COPY))
    assert job.measured(on="device") == set()
    assert {"device", "raw"} <= job.measured(on="host")
    [host] = [one for one in job.outcome.measurement.experiments if one.name == "host"]
    assert host.reason == NO_COPY
    assert "copy" not in [span.name for span in job.outcome.measurement.stages]


def test_what_such_a_loop_writes_into_a_cached_batch_is_not_served_again(monkeypatch):
    job = Job(monkeypatch, Loop(copies_itself=True), writes=True)
    assert "host" in job.measured(on="host")
    # It gets separate containers: no data are cloned, so that there is nothing to warn of.
    assert "batch-changed-in-place" not in [warning.id for warning in job.outcome.measurement.warnings]
