"""An error becomes one sentence, with the user's exception shown once and the right remedy."""

import pickle
from types import SimpleNamespace

import pytest
import torch

from bottleneck.errors import ExitStatus, MeasurementError
from bottleneck.loader import modes
from bottleneck.loader.switched import LoaderEnded, SwitchedLoader
from bottleneck.loader.user_code import PassesThrough, UserCodeError, describe_failure
from bottleneck.measure.caches import BatchCache, CachedBatch
from bottleneck.measure.cold import with_cold
from bottleneck.measure.explain_errors import (
    came_from_loader,
    explain_loader_failure,
    explain_step_failure,
    lacks_memory,
    loader_failures,
)
from bottleneck.measure.ledger import Ledger, describe_arm
from bottleneck.measure.rounds.visit import Counters
from bottleneck.measure.rounds.visits import Visits
from tests.measure.ladders import make_ladder


def caught(error):
    try:
        raise error
    except type(error) as raised:
        return raised


def user_code_error(error, **options):
    facts = {"where": "dataset", "index": 17, "worker": 3, "mode": modes.SKIP_OTHER, **options}
    where = facts.pop("where")
    text = describe_failure(caught(error), where, **facts)
    return UserCodeError(f"Caught UserCodeError in DataLoader worker process 3.\nOriginal Traceback (...):\n{text}\n")


IN_COLLATION = {"where": "collate_fn", "index": None}
NO_STACK = "stack expects each tensor to be equal size, but got [3, 4] at entry 0 and [3, 5] at entry 1"


@pytest.mark.parametrize(
    ("error", "options", "message", "remedy"),
    [
        (ValueError("cut\noff"), {}, "at index 17 in worker 3, experiment after_crop: ValueError: cut off", ""),
        (KeyError("a"), {"worker": None, "index": None}, "raised in the main process, experiment ", ""),
        (ValueError("x"), IN_COLLATION, "The collate function raised in worker 3", ""),
        (ValueError("x"), {**IN_COLLATION, "index": [3, 17]}, "raised for the samples [3, 17] in worker 3", ""),
        (ValueError("x"), {"where": "worker_init_fn", "index": None}, "worker_init_fn raised in worker 3", ""),
        (ValueError("x"), {"mode": modes.RECORD | modes.ALL}, "worker 3, while samples were recorded: V", ""),
        (ValueError("x"), {"mode": modes.ALL & ~modes.AUGMENT}, "experiment without augment", ""),
        (ValueError("x"), {"mode": modes.ALL | modes.skip_bit(2)}, "experiment after_crop", ""),
        (ValueError("x"), {"mode": modes.COLLATE}, "experiment before_collate", ""),
        (RuntimeError(NO_STACK), IN_COLLATION, "in worker 3, experiment after_crop: RuntimeError", "pads them"),
        (TypeError("object of type 'NoneType' has no len()"), IN_COLLATION, "TypeError", "A sample probably is None"),
        (RuntimeError("unable to allocate shared memory(shm)"), {}, "The dataset raised", "/dev/shm"),
    ],
)
def test_what_the_users_code_raised_in_the_loader(error, options, message, remedy):
    failure = explain_loader_failure(user_code_error(error, **options), "after_crop")
    assert message in failure.message
    assert remedy in failure.remedy
    assert failure.exit_status == ExitStatus.COULD_NOT_MEASURE
    assert failure.details.count(type(error).__name__) == 1
    assert "bottleneck-failure" not in str(failure) + failure.details


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("DataLoader timed out after 300 seconds", "no batch for a long time", "py-spy dump"),
        ("DataLoader worker (pid 7) is killed by signal: Killed. ", "A worker died of SIGKILL,", "out-of-memory"),
        ("DataLoader worker (pid 7) is killed by signal: Segmentation fault. ", "of SIGSEGV,", "PYTHONFAULTHANDLER"),
        ("DataLoader worker (pid(s) 7, 8) exited unexpectedly", "A worker died, ", "fewer workers"),
        ("DataLoader worker (pid(s) 7) exited unexpectedly: SIGABRT", "A worker died of SIGABRT,", "Native code"),
        ("DataLoader worker (pid(s) 7) exited unexpectedly: SIGTERM", "A worker died of SIGTERM,", "time limit"),
        ("DataLoader worker (pid(s) 7) exited unexpectedly: status 3", "A worker died with status 3,", "os._exit"),
        ("DataLoader worker (pid 7) exited unexpectedly with exit code 3", "A worker died with status 3,", "os._exit"),
        (
            "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers are "
            "out of shared memory.",
            "A worker died of SIGBUS,",
            "--shm-size",
        ),
        ("unable to write to file </torch_1>: No space left on device (28)", "Shared memory ran out", "/dev/shm"),
        ("Too many open files. Communication with the workers is no longer possible.", "descriptors", "ulimit -n"),
    ],
)
def test_failures_of_the_machine_have_remedies_of_their_own(text, message, remedy):
    failure = explain_loader_failure(caught(RuntimeError(text)), "before_collate")
    assert message in failure.message
    assert remedy in failure.remedy
    assert "before_collate" in failure.message
    assert "\n" not in failure.message


def test_what_a_worker_raised_is_told_instead_of_pytorchs_text_around_it():
    text = (
        "Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
        '  File "worker.py", line 3, in _worker_loop\n    init_fn(0)\n    ~~~^^^\nValueError: no such shard\n'
    )
    failure = explain_loader_failure(caught(ValueError(text)), "raw")
    assert failure.message == "The loader raised, experiment raw: ValueError: no such shard"


def test_a_job_that_cannot_be_pickled():
    def local():
        pass

    try:
        pickle.dumps(local)
    except Exception as error:  # of another type in each Python
        failure = explain_loader_failure(error, "raw")
    assert failure.message.startswith("The job cannot be sent to its workers: ")
    assert "instead of lambdas" in failure.remedy


def test_an_exception_whose_text_fails_is_told_by_its_kind():
    class Mute(Exception):
        def __str__(self):
            raise OSError

    assert "Mute" in explain_loader_failure(caught(Mute()), "raw").message
    assert "Mute" in explain_step_failure(caught(Mute()), "raw").message


@pytest.mark.parametrize("error", [KeyboardInterrupt(), PassesThrough()])
def test_what_is_not_the_users_passes(error):
    with pytest.raises(type(error)), loader_failures("raw"):
        raise error


def test_any_other_error_of_the_loader_is_shown():
    failure = explain_loader_failure(caught(OSError("odd\nthing")), "raw")
    assert failure.message == "The loader raised, experiment raw: OSError: odd"
    assert "OSError: odd" in failure.details


def test_a_step_that_raised_is_told_without_our_own_frames():
    def step(batch):
        raise ValueError("shapes differ")

    with pytest.raises(ValueError, match="shapes differ") as raised:
        BatchCache([CachedBatch(1, 1)]).probe(step)
    failure = explain_step_failure(raised.value, "device")
    assert failure.message == "The train step raised, experiment device: ValueError: shapes differ"
    assert failure.details.count("ValueError: shapes differ") == 1
    assert "in step" in failure.details
    assert "in probe" not in failure.details
    assert "one batch" in failure.remedy
    assert "out of memory" not in failure.remedy


@pytest.mark.parametrize(
    ("error", "whose"),
    [
        (torch.cuda.OutOfMemoryError("Tried to allocate"), "device's"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "device's"),
        (MemoryError(), "machine's"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."), "machine's"),
        (ValueError("a memory of shapes"), None),
    ],
)
def test_a_step_that_ran_out_of_memory(error, whose):
    failure = explain_step_failure(caught(error), "device")
    assert (f"The {whose} memory is full" in failure.remedy) == (whose is not None)
    # What is cached there is ours.
    assert ("--cache-bytes 256MiB (in Python: cache_bytes=256 << 20)" in failure.remedy) == (whose == "device's")
    failure.__cause__ = error
    assert lacks_memory(failure) == (whose is not None)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [("Target 6 is out of bounds.", "A label is 6,"), ("CUDA error: device-side assert triggered", "on the CPU")],
)
def test_labels_out_of_range_have_remedies_of_their_own(text, remedy):
    assert remedy in explain_step_failure(caught(IndexError(text)), "device").remedy


def test_a_worker_that_dies_during_a_step_is_not_the_steps_fault():
    # PyTorch's handler of SIGCHLD raises wherever the main process happens to be.
    error = caught(RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. "))
    assert came_from_loader(error)
    assert explain_step_failure(error, "raw").message.startswith("A worker died")
    assert not came_from_loader(caught(RuntimeError("shapes differ")))


@pytest.mark.parametrize("extra", [0, modes.NOTE_FILES, modes.ONE_THREAD])
def test_everything_real_outside_of_an_experiment_is_told_as_the_job(extra):
    # Guards: a dataset that raises while the files of `cold` are found, told as an experiment 'without handoff'.
    failure = explain_loader_failure(user_code_error(ValueError("x"), mode=modes.ALL & ~modes.HANDOFF | extra), "raw")
    assert "in worker 3, experiment raw: ValueError: x" in failure.message


LADDER = with_cold(make_ladder(within_sample=("augment", "load")), None)


class BrokenLoader:
    """Raises what a worker raised in some mode."""

    num_workers, iterable, begin_epoch_within, _iterator, _watch = 2, False, id, "made", None

    def __init__(self, mode):
        self.mode = mode

    def _receive(self):
        raise user_code_error(ValueError("x"), mode=self.mode)

    next_batch = SwitchedLoader.next_batch


def failure_in(arm, mode):
    """The message of a failure in a mode, while a visit switches to an arm."""
    loader = BrokenLoader(mode)
    replays = SimpleNamespace(vary=False)
    bench = SimpleNamespace(loader=loader, replays=replays, clock=lambda: 0.0)
    bench.begin_visit, bench.prepare = lambda *_: None, lambda _: loader.next_batch()
    ledger = Ledger({}, {})
    ledger.ladder = LADDER
    with pytest.raises(MeasurementError) as raised:
        Visits(bench, ledger, Counters(), lambda: 0.0).visit(arm, 4, range(1))
    return raised.value.message


NAMED = {describe_arm(arm, LADDER): arm for arm in LADDER.arms() if arm.mode is not None}


@pytest.mark.parametrize("name", NAMED)
def test_what_fails_in_an_experiment_is_told_by_its_name(name):
    assert f", experiment {name}: ValueError: x" in failure_in(NAMED[name], NAMED[name].mode)


def test_a_batch_in_flight_is_told_by_what_was_real_in_it():
    resting = next(rung.coupled for rung in LADDER.rungs if rung.name == "after_collate")
    assert "experiment raw: ValueError: x" in failure_in(resting, modes.ALL)
    assert "experiment without augment: ValueError: x" in failure_in(LADDER.device, modes.ALL & ~modes.AUGMENT)


def test_an_empty_loader():
    with pytest.raises(Exception, match="yielded no batch") as raised, loader_failures("raw"):
        raise LoaderEnded
    assert "len(dataset)" in raised.value.remedy
