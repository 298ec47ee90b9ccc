"""The pass of observation with real workers: waiting is told from computing, and planted work costs what it does."""

import threading
import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from bottleneck.analysis.parts import share_of
from bottleneck.measure.evidence.stages import observe, summarise
from tests.loader.staged_datasets import switched
from tests.support.as_json import said
from tests.support.in_full import render_in_full
from tests.support.looks import diagnose_until, names
from tests.support.results_factory import evidence_of

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more workers than cores is meant
]

PLANTED_S = 8e-3


def spin(seconds=PLANTED_S):
    """Compute for so much CPU time; how long that takes depends on who else is at work."""
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass


class Spin:
    def __call__(self, image):
        spin()
        return image


class Sleep:
    def __call__(self, image):
        time.sleep(PLANTED_S)
        return image


class Photos(Dataset):
    transform = None

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        image = self.load(index)
        return (image if self.transform is None else self.transform(image)), index

    def load(self, index):
        return torch.full((3, 4, 4), float(index))


class Sleeping(Photos):
    def load(self, index):
        time.sleep(PLANTED_S)
        return super().load(index)


class Spinning(Photos):
    def load(self, index):
        spin()
        return super().load(index)


class Augmented(Photos):
    def __init__(self, transform):
        self.transform = transform


class Wrapping(DataLoader):
    """Works on each batch, so that it must get them all."""

    def __iter__(self):
        for batch in super().__iter__():
            assert batch is not None
            yield batch


def look(dataset, loader=DataLoader, limit_s=0.5, **options):
    """Return the observations of a dataset, and its evidence."""
    with switched(loader(dataset, **{"batch_size": 4, "num_workers": 1, **options})) as wrapped:
        seen = observe(wrapped, limit_s, time.perf_counter)
    return seen, said(summarise(seen, ()))


def waiting_of(seen, evidence, stage):
    spent = seen.stages[stage]
    return share_of(spent.wall_s, spent.cpu_s, evidence_of(evidence))


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("dataset", [Sleeping(), Augmented(v2.Compose([Sleep()]))], ids=["load", "augment"])
def test_work_that_sleeps_is_waiting(dataset, num_workers):
    seen, evidence = look(dataset, num_workers=num_workers)
    stage = "load" if isinstance(dataset, Sleeping) else "augment"
    assert seen.workers == max(1, num_workers)
    assert waiting_of(seen, evidence, stage) > 0.7


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("dataset", [Spinning(), Augmented(v2.Compose([Spin()]))], ids=["load", "augment"])
def test_work_that_spins_is_computing(dataset, num_workers):
    seen, evidence = look(dataset, num_workers=num_workers)
    stage = max(seen.stages, key=lambda name: seen.stages[name].wall_s)
    assert stage == "augment" or isinstance(dataset, Spinning)
    assert waiting_of(seen, evidence, stage) < 0.3


@pytest.mark.parametrize("options", [{"num_workers": 0}, {"num_workers": 2}, {"loader": Wrapping}], ids=str)
def test_a_planted_transform_costs_what_was_planted_and_rows_add_up(options):
    dataset = Augmented(v2.Compose([v2.Identity(), v2.RandomApply([Spin()], p=0.5), Sleep(), v2.Resize(8)]))
    seen, evidence = look(dataset, limit_s=1.0, **options)
    rows = {row["name"]: row for row in evidence["transforms"]}
    assert list(rows) == ["Identity", "Spin", "Sleep", "Resize"]
    assert rows["Spin"]["cpu_s_per_call"] == pytest.approx(PLANTED_S, rel=0.1)
    assert rows["Sleep"]["cpu_s_per_call"] < 0.1 * PLANTED_S < PLANTED_S <= rows["Sleep"]["wall_s_per_call"]
    assert rows["Sleep"]["calls_per_sample"] == 1.0
    assert 0.1 < rows["Spin"]["calls_per_sample"] < 0.9
    assert rows["Resize"]["output"] == "3x8x8 float32"
    assert 0.9 <= sum(row["share"] for row in rows.values()) <= 1.0
    assert "transforms_note" not in evidence
    assert seen.stages["augment"].wall_s > 10 * seen.stages["load"].wall_s


class Inline(Photos):
    def __getitem__(self, index):
        sum(range(150_000))
        return torch.zeros(4), index


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(("kind", "code"), [(Inline, "sum(range(150_000))"), (Sleeping, "time.sleep(PLANTED_S)")])
def test_the_line_that_takes_the_time_is_found(kind, code, num_workers):
    _, evidence = look(kind(), num_workers=num_workers)
    line = next(line for line in evidence["lines"] if line["code"] == code)
    assert (line["path"], line["calls"], line["library"]) == ("tests/measure/test_observing.py", None, False)
    assert line["share"] > 0.8
    assert line["waiting_share"] > 0.7 if kind is Sleeping else line["waiting_share"] < 0.3
    assert not any(thread.name == "bottleneck-lines" for thread in threading.enumerate())


class Client:
    def __init__(self, bucket):
        self.bucket = bucket
        time.sleep(PLANTED_S)


class Reading(Photos):
    """Makes a client for each sample, or keeps the first one."""

    def __init__(self, keep):
        self.client, self.keep = None, keep

    def load(self, index):
        client = self.client or Client("bucket")
        self.client = client if self.keep else None
        time.sleep(PLANTED_S / 4)
        return super().load(index)


@pytest.mark.parametrize("keep", [False, True])
def test_a_client_that_each_sample_makes_is_found_and_one_that_is_kept_is_not(keep):
    _, evidence = look(Reading(keep), num_workers=2)
    found = evidence.get("constructions", [])
    assert bool(found) is not keep
    for made in found:
        assert (made["name"], made["code"]) == ("Client", 'client = self.client or Client("bucket")')
        assert made["share"] == pytest.approx(0.8, abs=0.1)
        assert made["seen"] > 0.7 * made["looked_at"] > 10


# --- in a whole diagnosis ----------------------------------------------------------------------------------


def take_a_step(batch):
    time.sleep(2e-3)


def load_of(diagnosis):
    return next(stage for stage in diagnosis.stages if stage.name == "load")


def costs_of_load(diagnosis):
    """On busy cores a stage is named before there are rounds enough for its cost."""
    return names("load")(diagnosis) and load_of(diagnosis).cost_s_per_batch is not None


@pytest.mark.sleeps
def test_loading_that_sleeps_is_advised_to_wait_less_and_the_result_says_how_much_it_waits():
    dataset = Sleeping()
    dataset.transform = v2.Compose([v2.Identity(), v2.Resize(8)])
    job = {"dataset": dataset, "train_step": take_a_step, "batch_size": 2, "num_workers": 1, "device": "cpu"}
    diagnosis = diagnose_until(costs_of_load, job, (8.0, 20.0, 40.0))
    assert diagnosis.verdict.bottleneck == "load"
    [of_load] = [item for item in diagnosis.advice if item.id in ("wait-less", "costliest-line")]  # the line, if seen
    assert "wait" in of_load.why
    load = load_of(diagnosis)
    assert load.wall_s_per_batch > 2 * PLANTED_S > 5 * load.cpu_s_per_batch
    assert load.wall_s_per_batch < 2 * load.cost_s_per_batch.estimate
    assert [row.name for row in diagnosis.evidence.transforms] == ["Identity", "Resize"]
    assert "load is waiting" in render_in_full(diagnosis, "text")
