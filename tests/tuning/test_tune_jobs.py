"""Real jobs with a planted answer: the kept changes, the tuned job's own throughput, and restored state."""

import copy
import random
import time

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import bottleneck
from bottleneck.cli.main import run
from bottleneck.errors import ExitStatus, MeasurementError
from tests.support.sessions import known_helpers, workers_left
from tests.test_left_as_found import same

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def one_thread():
    """Threads of a step on the CPU wait for each other by computing, which takes the cores from the workers."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Slow(Dataset):
    """Waits for each sample, as for a disk: it takes no core."""

    def __init__(self, sample_s=0.005, length=4096):
        self.sample_s, self.length = sample_s, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        time.sleep(self.sample_s)
        return torch.randn(8) + random.random() + float(np.random.rand()), index % 2


class Job:
    """A job in the middle of its training, whose step takes no core either, as that of a GPU."""

    def __init__(self, step_s=0.01, **fields):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.step_s = step_s
        loss = nn.CrossEntropyLoss()
        loss(self.model(torch.randn(4, 8)), torch.zeros(4, dtype=torch.long)).backward()
        self.optimizer.step()

        def waiting_loss(output, target):
            time.sleep(self.step_s)
            return loss(output, target)

        given = {"dataset": Slow(), "batch_size": 8, "num_workers": 1, "shuffle": True, "device": "cpu"}
        self.pipeline = bottleneck.Pipeline(
            model=self.model, loss_fn=waiting_loss, optimizer=self.optimizer, **{**given, **fields}
        )

    def state(self):
        return copy.deepcopy((
            self.model.state_dict(), self.optimizer.state_dict(), [p.grad for p in self.model.parameters()],
            torch.get_rng_state(), random.getstate(), np.random.get_state()[1], self.pipeline.dataset.__dict__,
        ))  # fmt: skip


def plain_loop_s(pipeline, batches=60, warm_up=20):
    """Seconds of a batch in a loop that anybody would write."""
    loader, model, times = pipeline.make_loader(), pipeline.model, []
    for number, (inputs, targets) in enumerate(loader):
        if number == warm_up:
            began_s = time.perf_counter()
        if number == warm_up + batches:
            return (time.perf_counter() - began_s) / batches
        pipeline.loss_fn(model(inputs), targets).backward()
        pipeline.optimizer.step()
        pipeline.optimizer.zero_grad()
    raise AssertionError(times)


def slower(pipeline):
    return pipeline.replace(dataset=Slow(2 * pipeline.dataset.sample_s))


def tune_until(is_right, pipeline, budgets, **asked):
    """Tune with one budget after the other: a machine that others use takes longer."""
    for budget in budgets:
        tuning = bottleneck.tune(pipeline, budget=budget, **asked)
        if is_right(tuning):
            break
    return tuning


def kept_by(tuning):
    return [setting for rung in tuning.ladder for setting in rung.settings]


def test_a_job_short_of_workers_gets_them_and_is_left_as_it_was():
    # One worker takes 40 ms for a batch, a step 10 ms.
    known_helpers()
    job = Job()
    before = job.state()
    changes = ["num_workers", bottleneck.Change("slower", apply=slower, alters="nothing")]
    tuning = tune_until(kept_by, job.pipeline, ("36s", "120s"), try_=changes)
    assert same(job.state(), before)
    assert not workers_left()
    (kept,) = kept_by(tuning)
    workers = int(kept.removeprefix("num_workers="))
    assert workers > 1
    assert "kept" not in {trial.outcome for trial in tuning.trials if "slower" in trial.setting}
    plain_s = [plain_loop_s(job.pipeline.replace(num_workers=count)) for count in (1, workers)]
    # With wide margins, as the plain loops ran at another time.
    assert 0.6 < tuning.gain.estimate / (plain_s[0] / plain_s[1]) < 1.6
    assert kept in str(tuning)


def test_a_job_without_workers_is_promised_what_it_gets_with_those_that_are_advised():
    # The main process takes 40 ms for a batch, the step 5 ms; both sleep.
    known_helpers()
    job = Job(0.005, num_workers=0)
    tuning = tune_until(kept_by, job.pipeline, ("60s", "120s"), try_=["num_workers"])
    assert not workers_left()
    [advice] = [advice for advice in tuning.before.advice[:2] if advice.id == "use-workers"]
    workers = advice.evidence["proposed"]["num_workers"]
    assert tuning.trials[0].setting == f"num_workers={workers}"
    # Tests beside this one only slow a loop down: the quickest of some is its own pace.
    loops = [job.pipeline.replace(num_workers=count) for count in (0, workers)]
    plain_s = [min(plain_loop_s(loop) for _ in range(5)) for loop in loops]
    assert 0.7 < advice.gain.estimate / (plain_s[0] / plain_s[1]) < 1.4
    assert kept_by(tuning)
    assert tuning.gain.estimate > 2


def test_workers_are_kept_between_short_epochs():
    # An epoch of 20 batches takes 0.1 s, and so does starting its workers.
    job = Job(0.001, dataset=Slow(0.001, 160), num_workers=2)
    before = job.state()
    tuning = tune_until(kept_by, job.pipeline, ("36s", "120s"), try_=["persistent_workers"])
    assert kept_by(tuning) == ["persistent_workers"]
    assert tuning.gain.estimate > 1.1
    assert same(job.state(), before)


def test_a_job_that_waits_for_each_sample_gains_by_threads():
    # A worker takes 40 ms for a batch of eight samples, of which each waits 5; the step takes 10.
    known_helpers()
    job = Job()
    before = job.state()
    tuning = tune_until(kept_by, job.pipeline, ("40s", "120s"), try_=["fetch_in_threads"])
    assert same(job.state(), before)
    assert not workers_left()
    assert kept_by(tuning) == ["fetch_in_threads=8"]
    assert tuning.gain.estimate > 1.6
    assert "def __getitems__(self, indices)" in "".join(tuning.lines)


JOB = """
import time, torch
from torch import nn

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 512
    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.zeros(4), 0

def build():
    model = nn.Linear(4, 2)
    return {"dataset": Data(), "model": model, "loss_fn": nn.CrossEntropyLoss(), "batch_size": 8, "num_workers": 1,
            "device": "cpu"}
"""


def test_the_command_writes_what_report_and_compare_read(folder, capsys):
    (folder / "job.py").write_text(JOB)
    assert run(["tune", "job.py:build", "--try", "num_workers", "--budget", "32s", "--json", "t.json"]) == ExitStatus.OK
    out, err = capsys.readouterr()
    assert "num_workers=" in out
    assert "Wrote t.json" in err
    for form in ("text", "markdown", "html"):
        assert run(["report", "t.json", "--format", form]) == ExitStatus.OK
    assert run(["compare", "t.json", "t.json"]) == ExitStatus.OK


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--try", "num_worker"], "Did you mean 'num_workers'?"),
        (["--try", " , "], "it contains no name"),
        (["--budget", "1s"], "too short to try one change"),
        (["--json", "no/such/folder/t.json"], "Cannot write"),
    ],
)
def test_bad_input_is_one_sentence(arguments, said, folder, capsys):
    (folder / "job.py").write_text(JOB)
    assert run(["tune", "job.py:build", *arguments]) == ExitStatus.USAGE
    assert said in capsys.readouterr().err


def test_a_job_that_fails_has_what_was_found():
    job = Job()
    job.pipeline = job.pipeline.replace(loss_fn=lambda output, target: 1 / 0)
    with pytest.raises(MeasurementError, match="division by zero") as caught:
        bottleneck.tune(job.pipeline, try_=["num_workers"], budget="60s")
    assert caught.value.tuning.ladder == ()
