"""`bottleneck.workers`: what it gives, what it keeps, what it refuses, and that it leaves a loader as it was."""

import json
import multiprocessing
import random
import time
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset

import bottleneck
from bottleneck._pydata import share_public_names
from bottleneck.errors import MeasurementError, UsageError
from bottleneck.tuner import workers as module
from bottleneck.tuner.search import Visit
from bottleneck.tuner.visits import LoaderVisits
from tests.support.sessions import known_helpers, workers_left
from tests.test_left_as_found import same
from tests.tuning.jobs import Stream

RATES = {0: 50.0, 1: 100.0, 2: 200.0, 3: 290.0, 4: 380.0, 5: 390.0, 6: 390.0, 8: 390.0}
"""Batches a second of an invented loader on four cores."""


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "torch-bottleneck" / "workers.json"


@pytest.fixture
def visited(monkeypatch):
    """Visits an invented loader."""
    seen = SimpleNamespace(counts=[], failing=(), late=(), depths=1.0)

    class Visits:
        def __init__(self, loader, until_s):
            pass

        def __call__(self, workers, prefetch=None):
            seen.counts.append(workers)
            if workers in seen.failing:
                raise MeasurementError("Shared memory ran out.")
            if workers in seen.late:
                return None
            rate = RATES[workers] * (seen.depths if prefetch == 4 else 1.0)
            return Visit(40, 400, 40 / rate, worker_cpu_s=40 / rate * max(1, workers))

    monkeypatch.setattr(module, "LoaderVisits", Visits)
    monkeypatch.setattr(module, "usable_cores", lambda: 4.0)
    return seen


def loader_of(**options):
    return DataLoader(TensorDataset(torch.zeros(64, 2)), **{"batch_size": 10, **options})


# --- the number found ----------------------------------------------------------------------------------------


def test_the_number_its_queue_its_start_and_the_throughput_of_each_that_was_tried(visited):
    found = bottleneck.workers(loader_of(num_workers=1))
    assert (found.num_workers, found.prefetch_factor, found.given) == (4, 2, 1)
    assert found.start_method == torch.multiprocessing.get_start_method()
    assert found.samples_per_s == pytest.approx({1: 1000.0, 4: 3800.0})
    assert found.gain == pytest.approx(3.8)
    assert (found.reason, found.is_kept) == (None, False)
    assert DataLoader(TensorDataset(torch.zeros(8)), **found.arguments).num_workers == 4


def test_with_a_step_the_throughput_is_that_of_both(visited):
    found = bottleneck.workers(loader_of(num_workers=1), step_s=0.006)
    assert found.num_workers == 2
    assert found.samples_per_s == pytest.approx({1: 1000.0, 2: 10 / 0.006})


def test_without_workers_there_is_no_queue_and_no_start(visited):
    visited.failing = (1, 2, 3, 4, 8)
    found = bottleneck.workers(loader_of(num_workers=0))
    assert (found.num_workers, found.prefetch_factor, found.start_method) == (0, None, None)
    assert found.arguments == {"num_workers": 0}
    assert found.gain == 1.0


def test_a_longer_queue_is_taken_only_where_it_is_faster(visited):
    assert bottleneck.workers(loader_of(num_workers=4)).prefetch_factor == 2
    visited.depths = 1.3
    assert bottleneck.workers(loader_of(num_workers=4), fresh=True).prefetch_factor == 4
    assert bottleneck.workers(loader_of(num_workers=4, prefetch_factor=16), fresh=True).prefetch_factor == 16


def test_a_number_that_does_not_run_is_passed_over_and_a_loader_that_does_not_is_an_error(visited):
    visited.failing = (4,)
    assert bottleneck.workers(loader_of(num_workers=1)).num_workers == 1
    visited.failing = (1,)
    with pytest.raises(MeasurementError, match="Shared memory"):
        bottleneck.workers(loader_of(num_workers=1), fresh=True)


def test_a_stream_keeps_its_workers(visited):
    found = bottleneck.workers(DataLoader(Stream(), num_workers=2, prefetch_factor=3))
    assert (found.num_workers, found.prefetch_factor, found.samples_per_s) == (2, 3, {})
    assert "divides itself among the workers" in found.reason
    assert found.gain == 1.0
    assert visited.counts == []


def test_in_a_process_that_may_start_none_it_stays_as_it_is(visited, monkeypatch):
    monkeypatch.setattr(multiprocessing, "current_process", lambda: SimpleNamespace(daemon=True))
    assert "cannot start any" in bottleneck.workers(loader_of(num_workers=3)).reason


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([1, 2],), "takes a DataLoader, not a list"),
        ((loader_of(), 0), "step_s must be a number of seconds over 0, not 0"),
        ((loader_of(), "0.1"), "step_s must be"),
        ((loader_of(), None, float("inf")), "seconds must be"),
        ((loader_of(), None, -1), "seconds must be"),
    ],
)
def test_what_is_no_loader_and_no_time_is_one_sentence(arguments, said):
    with pytest.raises(UsageError, match=said):
        bottleneck.workers(*arguments)


def test_the_name_is_there_beside_pydatas_bottleneck_too():
    pydatas = ModuleType("bottleneck")
    share_public_names(pydatas)
    assert pydatas.workers is bottleneck.workers is module.workers
    assert "workers" in dir(bottleneck)


# --- the number kept -----------------------------------------------------------------------------------------


def test_what_was_found_is_kept_for_this_machine_dataset_and_settings(visited, cache):
    first = bottleneck.workers(loader_of(num_workers=1))
    tried = len(visited.counts)
    again = bottleneck.workers(loader_of(num_workers=1))
    assert (again, again.is_kept, len(visited.counts)) == (first, True, tried)
    assert bottleneck.workers(loader_of(num_workers=1), fresh=True).is_kept is False
    assert len(json.loads(cache.read_text())) == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda: (loader_of(num_workers=1, batch_size=5),),
        lambda: (loader_of(num_workers=2),),
        lambda: (loader_of(num_workers=1, prefetch_factor=3),),
        lambda: (loader_of(num_workers=1, shuffle=True),),
        lambda: (loader_of(num_workers=1, collate_fn=list),),
        lambda: (DataLoader(TensorDataset(torch.zeros(65, 2)), 10, num_workers=1),),
        lambda: (DataLoader(list(range(64)), 10, num_workers=1),),
        lambda: (loader_of(num_workers=1), 0.02),
    ],
)
def test_of_other_settings_it_is_found_anew(visited, other):
    bottleneck.workers(loader_of(num_workers=1))
    assert not bottleneck.workers(*other()).is_kept


def test_a_step_is_the_same_up_to_what_a_clock_wanders(visited):
    bottleneck.workers(loader_of(num_workers=1), 0.0201)
    assert bottleneck.workers(loader_of(num_workers=1), 0.0199).is_kept


@pytest.mark.parametrize(
    "text", ["", "[1]", "{", '{"%s": 3}', '{"%s": {"num_workers": 2}}', '{"%s": {"samples_per_s": 1}}']
)
def test_a_file_that_is_no_more_as_it_was_written_is_written_anew(visited, cache, text):
    first = bottleneck.workers(loader_of(num_workers=1))
    (key,) = json.loads(cache.read_text())
    cache.write_text(text.replace("%s", key))
    again = bottleneck.workers(loader_of(num_workers=1))
    assert (again.num_workers, again.is_kept) == (first.num_workers, False)
    assert key in json.loads(cache.read_text())


def test_where_nothing_can_be_kept_it_is_found_all_the_same(visited, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert bottleneck.workers(loader_of(num_workers=1)).num_workers == 4
    assert not bottleneck.workers(loader_of(num_workers=1)).is_kept


@pytest.mark.parametrize(("late", "tried"), [((1, 0, 2, 4), 0), ((0, 2, 4), 1), ((4,), 2)])
def test_what_there_was_no_time_for_is_not_kept(visited, cache, late, tried):
    visited.late = late
    found = bottleneck.workers(loader_of(num_workers=1))
    assert (found.num_workers, len(found.samples_per_s)) == (1, tried)
    assert found.reason == (None if tried > 1 else "there was no time for another number of workers")
    assert not cache.exists()
    visited.late = ()
    assert bottleneck.workers(loader_of(num_workers=1)).num_workers == 4
    assert cache.exists()


# --- visits --------------------------------------------------------------------------------------------------


class Drawing(Dataset):
    """Draws from all random numbers, and keeps what it has opened."""

    def __init__(self, sample_s=0.0):
        self.sample_s, self.handle, self.made = sample_s, None, 0
        self.generator = torch.Generator().manual_seed(3)

    def __len__(self):
        return 4096

    def __getitem__(self, index):
        time.sleep(self.sample_s)
        self.handle, self.made = object(), self.made + 1
        return torch.randn(8) + random.random() + float(np.random.rand()) + torch.rand((), generator=self.generator)


class Ticking:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        self.now_s += 0.02
        return self.now_s


def drawing_loader(num_workers, sample_s=0.0):
    dataset, generator = Drawing(sample_s), torch.Generator().manual_seed(7)
    sampler = RandomSampler(dataset, generator=generator)
    return DataLoader(dataset, 8, sampler=sampler, num_workers=num_workers, generator=generator)


def state_of(loader):
    """All that somebody could notice."""
    dataset = loader.dataset
    return (
        {key: id(value) for key, value in vars(loader).items()},
        {key: id(value) for key, value in vars(dataset).items()},
        dataset.made, dataset.generator.get_state(), loader.generator.get_state(), torch.get_rng_state(),
        random.getstate(), np.random.get_state()[1], torch.get_num_threads(),
    )  # fmt: skip


def test_without_workers_a_visit_leaves_nothing_in_the_dataset():
    loader = drawing_loader(0)
    before = vars(loader.dataset).copy()
    visit = LoaderVisits(loader, 100.0, Ticking())(0)
    assert (visit.samples, visit.seconds >= 0.4) == (8 * visit.batches, True)
    assert vars(loader.dataset) == before


def test_there_is_no_visit_that_would_end_too_late():
    assert LoaderVisits(drawing_loader(0), 0.3, Ticking())(0) is None


def test_a_loader_that_fails_is_explained():
    class Failing(Drawing):
        def __getitem__(self, index):
            raise ValueError("the file is truncated")

    with pytest.raises(MeasurementError, match="the file is truncated"):
        LoaderVisits(DataLoader(Failing(), 8), 100.0, Ticking())(0)


@pytest.mark.integration
@pytest.mark.sleeps
@pytest.mark.parametrize("given", [0, 1])
def test_a_loader_that_waits_gets_workers_and_is_left_as_it_was(given):
    known_helpers()
    loader = drawing_loader(given, 0.004)
    before = state_of(loader)
    found = bottleneck.workers(loader)
    assert same(state_of(loader), before)
    assert not workers_left()
    assert found.num_workers > 1
    assert found.samples_per_s[found.num_workers] > 1.4 * found.samples_per_s[given]
    assert found.seconds < 20.0
    batches = iter(loader)
    assert len(next(batches)) == 8


@pytest.mark.integration
@pytest.mark.sleeps
def test_with_a_step_no_more_workers_are_found_than_keep_it_busy():
    # One worker takes 32 ms for a batch.
    found = bottleneck.workers(drawing_loader(4, 0.004), step_s=0.1)
    assert found.num_workers <= 2
