import pytest
import torch
from torch.utils.data import Dataset

from bottleneck import Pipeline
from bottleneck.analysis.advice.rules.workers import LARGE_PICKLE_BYTES, LONG_START_S
from bottleneck.doctor.job_checks import first_batch, job
from bottleneck.doctor.job_checks.first_batch import examine_batch, judge_memory, judge_queue, judge_threads
from bottleneck.doctor.job_checks.traceback_place import find_place
from bottleneck.loader.worker.worker_facts import WorkerFacts
from bottleneck.measure.facts.pickling import PickleSize
from bottleneck.results.evidence import LoaderFacts
from tests.support.clock import FakeClock
from tests.support.datasets import Stream

MIB = 1 << 20


class Numbers(Dataset):
    def __init__(self, length=40):
        self.length = length
        self.taken = []

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        self.taken.append(index)
        return torch.full((3,), float(index)), index


class Broken(Numbers):
    def __getitem__(self, index):
        raise ValueError("no such file")


def make(dataset=None, **arguments):
    return Pipeline(dataset=dataset or Numbers(), train_step=print, batch_size=4, **arguments)


# --- the description --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_more_workers_than_cores_are_told(monkeypatch):
    monkeypatch.setattr(job, "usable_cores", lambda: 1.5)
    findings = {finding.subject: finding for finding in job.examine_description(make(num_workers=3))}
    assert findings["workers"].message == "3 workers share 1.5 cores"
    assert findings["workers"].remedy == "Try num_workers=1."
    assert "batches" not in findings


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize(("length", "told"), [(8, True), (12, False)])
def test_fewer_batches_than_workers_are_told(monkeypatch, length, told):
    monkeypatch.setattr(job, "usable_cores", lambda: 8.0)
    subjects = [f.subject for f in job.examine_description(make(Numbers(length), num_workers=3))]
    assert ("batches" in subjects) == told


# --- the pickle -------------------------------------------------------------------------------------------


def size(stream_bytes=1000, duration_s=0.01, **changes):
    return lambda value: PickleSize(stream_bytes, 0, duration_s, **{"complete": True, **changes})


@pytest.mark.parametrize(
    ("measure", "method", "status"),
    [
        (size(), "spawn", "ok"),
        (size(100 * MIB), "spawn", "warning"),
        (size(100 * MIB), "fork", "ok"),
        (size(LARGE_PICKLE_BYTES), "spawn", "warning"),
        (size(duration_s=LONG_START_S), "forkserver", "warning"),
        (size(complete=False), "spawn", "warning"),
        (size(complete=False, failure="TypeError: no"), "spawn", "problem"),
        (size(complete=False, failure="TypeError: no"), "fork", "ok"),
    ],
)
def test_a_pickle_matters_where_it_is_sent(measure, method, status):
    pipeline = make(num_workers=1, multiprocessing_context=method)
    assert job.examine_pickle(pipeline, measure).status == status


def test_a_pickle_that_goes_to_nobody_is_no_problem():
    finding = job.examine_pickle(make(), size(complete=False, failure="TypeError: no"))
    assert finding.status == "ok"


def test_what_cannot_be_pickled_is_named():
    pipeline = make(num_workers=1, collate_fn=lambda samples: samples, multiprocessing_context="spawn")
    finding = job.examine_pickle(pipeline)
    assert finding.message.startswith("collate_fn cannot be pickled")
    assert "spawn" in finding.message


# --- samples ----------------------------------------------------------------------------------------------


def test_samples_are_those_of_the_second_batch():
    dataset = Numbers()
    finding = job.examine_samples(make(dataset))
    assert dataset.taken == [4, 5, 6, 7]
    assert finding.message.startswith("(float32 [3], int), the first in ")
    assert "3 more in" in finding.message


def test_slow_samples_end_soon():
    dataset = Numbers()
    finding = job.examine_samples(make(dataset), FakeClock(per_reading_s=1.0))
    assert len(dataset.taken) == 2
    assert "the first in 1.00 s, 1 more in 1.00 s each" in finding.message


def test_a_sample_that_raises_is_a_problem_with_its_index():
    finding = job.examine_samples(make(Broken()))
    assert finding.status == "problem"
    assert "raised at index 4: ValueError: no such file (test_doctor_job.py, line" in finding.message


def test_samples_of_an_iterable_dataset():
    finding = job.examine_samples(make(Stream()))
    assert finding.message.startswith("int, the first in ")
    assert "9 more in" in finding.message


def test_samples_that_nothing_batches():
    dataset = Numbers()
    job.examine_samples(Pipeline(dataset=dataset, train_step=print, batch_size=None))
    assert dataset.taken == list(range(1, 40))


# --- the first batch --------------------------------------------------------------------------------------


def test_a_batch_in_the_main_process(tmp_path):
    (finding,), _ = examine_batch(make().make_loader(), tmp_path / "trace", 60.0)
    assert finding.status == "ok"
    assert finding.message.startswith("[float32 [4, 3], int64 [4]], 80 bytes, ")
    assert finding.message.endswith(" from the main process")


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_a_batch_from_a_worker_tells_what_the_worker_is_like(tmp_path):
    loader = make(num_workers=3).make_loader()
    findings, _ = examine_batch(loader, tmp_path / "trace", 60.0)
    found = {finding.subject: finding for finding in findings}
    assert found["batch"].message.endswith("from one worker, its start included")
    assert found["worker threads"].message.startswith("in a worker torch uses 1")
    assert found["queue"].message.startswith("up to 7 batches in flight take 560 bytes")
    assert "for 3" in found["worker memory"].message


@pytest.mark.integration
def test_an_exception_in_a_worker_is_told_with_its_place(tmp_path):
    (finding,), also_in_main = examine_batch(make(Broken(), num_workers=1).make_loader(), tmp_path / "trace", 60.0)
    assert also_in_main
    assert finding.status == "problem"
    assert "a worker raised ValueError: no such file (test_doctor_job.py, line" in finding.message


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("DataLoader worker (pid 1) is killed by signal: Bus error."), "--shm-size"),
        (OSError(24, "Too many open files"), "ulimit -n"),
        (RuntimeError("DataLoader worker (pid(s) 1) exited unexpectedly"), "out-of-memory"),
        (StopIteration(), "share of data"),
        (SystemExit(3), "fail there too"),
    ],
)
def test_a_batch_that_does_not_come_has_a_remedy(error, words):
    finding = first_batch.explain(error)
    assert finding.status == "problem"
    assert words in finding.remedy


@pytest.mark.parametrize(
    ("facts", "cores", "workers", "status"),
    [
        (WorkerFacts(1), None, 8, "ok"),
        (WorkerFacts(1, opencv_threads=4), 4, 8, "warning"),
        (WorkerFacts(1, opencv_threads=0), 4, 8, "ok"),
        (WorkerFacts(4), 4, 1, "ok"),
        (WorkerFacts(4), 4, 2, "ok"),
        (WorkerFacts(4), 4, 3, "warning"),
        (WorkerFacts(1), 1, 2, "warning"),
        (WorkerFacts(1), 4, 2, "ok"),
    ],
)
def test_threads_of_workers_against_the_cores(monkeypatch, facts, cores, workers, status):
    monkeypatch.setattr(first_batch, "usable_cores", lambda: 4.0)
    monkeypatch.setattr(first_batch, "allowed_cores", lambda: 4)
    assert judge_threads(facts, cores, workers).status == status


def test_the_remedy_for_threads_names_the_library(monkeypatch):
    monkeypatch.setattr(first_batch, "usable_cores", lambda: 2.0)
    monkeypatch.setattr(first_batch, "allowed_cores", lambda: 2)
    assert "cv2.setNumThreads(0)" in judge_threads(WorkerFacts(1, opencv_threads=8), 2, 4).remedy
    assert "torch.set_num_threads(1)" in judge_threads(WorkerFacts(8), 2, 4).remedy


@pytest.mark.parametrize(
    ("descriptors", "free_bytes", "status"),
    [
        (32, 64 * MIB, "ok"),
        (32, None, "ok"),
        (32, 15 * MIB, "warning"),
        (900, 64 * MIB, "warning"),
        (None, 64 * MIB, "ok"),
    ],
)
def test_batches_in_flight_against_shared_memory_and_descriptors(descriptors, free_bytes, status):
    facts = LoaderFacts(shared_memory_bytes_needed=16 * MIB, descriptors_needed=descriptors, descriptor_limit=1024)
    finding = judge_queue(facts, 16, free_bytes)
    assert finding.status == status
    assert finding.message.startswith("up to 16 batches in flight take 16.0 MiB")


@pytest.mark.parametrize(("private", "status"), [(200 * MIB, "ok"), (210 * MIB, "warning"), (None, "ok")])
def test_the_memory_of_all_workers_against_what_is_free(private, status):
    assert judge_memory(private, 4, 1024 * MIB).status == status


# --- words ------------------------------------------------------------------------------------------------


def test_the_place_is_the_innermost_frame_of_the_users(tmp_path):
    import torch.utils.data

    ours = f'File "{torch.utils.data.__file__}", line 5 in __next__\n'
    users = f'File "{tmp_path}/train.py", line 9 in read\nFile "{tmp_path}/train.py", line 20 in build\n'
    assert find_place(ours + users, innermost_first=True) == "train.py, line 9"
    assert find_place(users + ours, innermost_first=False) == "train.py, line 20"
    assert find_place(ours, innermost_first=True) is None
