"""The page on GPUs: the loops and tables on a small job on the CPU, and one sentence where there is no GPU."""

import itertools
from dataclasses import replace

import pytest
import torch
from click.testing import CliRunner

from benchmarks import gpu, gpu_tune
from benchmarks.gpu import NO_GPU, Rung, Trial, check_trials, climb, render_page, run_trial, samples_per_s
from benchmarks.gpu_job import FIRST, LADDER, Job, Settings
from bottleneck.results.records import Interval
from tests.support.clock import FakeClock

TINY = Settings(workers=0, batch_size=2, side=16)
CPU = torch.device("cpu")


def tiny_model():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 1000))


def make(settings):
    return Job(replace(settings, workers=0, side=16, compiled=False), CPU, tiny_model)


def test_a_plain_loop_counts_after_its_warm_up_and_waits_for_the_device_at_both_ends():
    clock, log = FakeClock(), []

    def steps():
        for number in itertools.count():
            clock.advance(1.0 if number < 5 else 0.5)  # slow at first
            log.append("step")
            yield 10

    rate = samples_per_s(steps(), lambda: log.append("wait"), warm_up_s=5.0, loop_s=10.0, clock=clock)
    assert rate == pytest.approx(20.0)
    assert log.count("wait") == 2
    assert (log[5], log[-1]) == ("wait", "wait")


def trial(low, high, **changes):
    estimate = Interval((low + high) / 2, low, high)
    return Trial(
        **{"settings": Settings(), "state": "input_bound", "bottleneck": "load", "efficiency": estimate, "raw": 800.0,
           "plain": 800.0, "plain_device": 1000.0, "seconds": 50.0, **changes}
    )  # fmt: skip


def test_a_verdict_is_right_where_the_plain_loops_lie_in_its_interval_or_a_point_beside_it():
    assert trial(0.79, 0.82).right
    assert trial(0.805, 0.82).right
    assert not trial(0.82, 0.90).right
    assert not trial(0.79, 0.82, efficiency=None).right
    assert check_trials([trial(0.79, 0.82)] * 20).held
    assert not check_trials([trial(0.79, 0.82)] * 18 + [trial(0.9, 0.95)] * 2).held


def test_the_page_says_what_is_off():
    rungs = [Rung("as it was", FIRST, (100.0, 110.0)), Rung("torch.compile", FIRST, (210.0, 210.0))]
    trials = [trial(0.79, 0.82, notes="one-rank-of-many"), trial(0.9, 0.95, bottleneck=None, raw=None)]
    page = " ".join(render_page(trials, rungs, {"accelerator": "A GPU"}, "2026-01-02").split())
    assert "8 workers, 256 images (154 MB), pinned, eager" in page
    assert "0.925 (0.900–0.950) | 0.800 | **off**" in page
    assert "1 of 2" in page
    assert "**missed**" in page
    assert "| 210 ± 0.0 %" in page
    assert "| 2.00x" in page


def test_a_person_makes_one_change_after_the_other():
    rungs = climb(make, lambda: None, first=FIRST, blocks=2, warm_up_s=0.0, loop_s=0.0)
    assert [rung.change for rung in rungs] == [change for change, _ in LADDER]
    assert all(len(rung.samples_per_s) == 2 and rung.mean > 0 for rung in rungs)
    last = rungs[-1].settings
    assert (last.batch_size, last.uint8, last.autocast, last.compiled, last.workers) == (256, True, True, True, 16)
    assert sum(settings.batch_bytes > 150e6 for settings in gpu.JOBS) == len(gpu.JOBS) - 1


@pytest.mark.parametrize("changes", [{}, {"uint8": True, "autocast": True}], ids=["float32", "bytes"])
def test_the_job_trains(changes):
    job = make(replace(TINY, **changes))
    before = [parameter.detach().clone() for parameter in job.model.parameters()]
    assert [next(job.steps()), next(job.steps_on_device(1))] == [2, 2]
    assert any(not torch.equal(*pair) for pair in zip(before, job.model.parameters(), strict=True))
    (images, labels), dtype = next(iter(job.loader())), torch.uint8 if changes else torch.float32
    assert (images.shape, images.dtype, labels.dtype) == ((2, 3, 16, 16), dtype, torch.int64)


@pytest.mark.integration
def test_a_trial_is_a_diagnosis_beside_plain_loops():
    found = run_trial(TINY, make, lambda: None, loop={"warm_up_s": 0.1, "loop_s": 0.2}, budget=2.0)
    assert found.state in ("input_bound", "undecided", "device_bound")
    assert found.raw > 0
    assert 0 < found.truth < 1.5


def test_a_job_that_fails_is_a_row():
    def broken(settings):
        job = make(settings)
        job.fields = lambda: {"dataset": []}
        return job

    found = run_trial(TINY, broken, lambda: None, loop={"warm_up_s": 0.0, "loop_s": 0.0})
    assert found.state == "failed"
    assert "PipelineError" in found.notes
    assert not found.right


def test_a_tuning_is_kept_at_the_end_of_the_page(tmp_path):
    page = tmp_path / "GPU.md"
    gpu_tune.add_to_page(page, "first")
    assert page.read_text().startswith("# On a GPU\n")
    gpu_tune.add_to_page(page, "second")
    assert gpu.tuned_part(page).startswith("\n## The same, climbed by tune\n\nsecond\n")
    assert "3,268" in page.read_text()
    assert gpu.tuned_part(tmp_path / "none.md") == ""


@pytest.mark.parametrize("module", [gpu, gpu_tune])
def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path, monkeypatch, module):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    page = tmp_path / "GPU.md"
    done = CliRunner().invoke(module.main, ["--output", str(page)])
    assert (done.exit_code, done.output) == (0, f"{NO_GPU}\n")
    assert not page.exists()
