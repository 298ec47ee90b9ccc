"""What went wrong becomes one sentence, with the user's exception shown once and the right remedy."""

import pickle

import pytest
import torch

from bottleneck.errors import ExitStatus
from bottleneck.loader import modes
from bottleneck.loader.switched import LoaderEnded
from bottleneck.loader.user_code import UserCodeError, describe_failure
from bottleneck.measure.explain_errors import (
    came_from_loader,
    explain_loader_failure,
    explain_step_failure,
    lacks_memory,
    loader_failures,
    name_mode,
)
from bottleneck.measure.trace import TimeLimitExceeded


def caught(error):
    try:
        raise error
    except type(error) as raised:
        return raised


def user_code_error(error, **options):
    facts = {"where": "dataset", "index": 17, "worker": 3, "mode": modes.ALL, **options}
    where = facts.pop("where")
    text = describe_failure(caught(error), where, **facts)
    return UserCodeError(f"Caught UserCodeError in DataLoader worker process 3.\nOriginal Traceback (...):\n{text}\n")


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        *((mode, name) for name, mode in modes.MODE_OF_EXPERIMENT.items()),
        (modes.RECORD | modes.ALL, "recording"),
        (modes.ALL & ~modes.AUGMENT, "without augment"),
        (modes.ALL & ~modes.HANDOFF, "without handoff"),
    ],
)
def test_modes_have_names_for_people(mode, name):
    assert name_mode(mode, "after_crop") == name


def test_modes_of_marked_stages_have_the_name_of_the_present_experiment():
    assert name_mode(modes.ALL | modes.skip_bit(2), "after_crop") == "after_crop"
    assert name_mode(modes.ALL | modes.SKIP_OTHER, "without other") == "without other"


def test_a_sample_that_raised():
    failure = explain_loader_failure(user_code_error(ValueError("truncated\nfile")), "raw")
    assert failure.exit_status == ExitStatus.COULD_NOT_MEASURE
    assert failure.message == "The dataset raised at index 17 in worker 3, experiment raw: ValueError: truncated file"
    assert failure.details.count("ValueError: truncated") == 1
    assert failure.remedy
    assert "bottleneck-failure" not in str(failure) + failure.details


def test_a_sample_that_raised_in_the_main_process():
    error = user_code_error(KeyError("label"), worker=None, index=None)
    assert explain_loader_failure(error, "raw").message == (
        "The dataset raised in the main process, experiment raw: KeyError: 'label'"
    )


def test_a_collate_function_that_raised():
    failure = explain_loader_failure(user_code_error(ValueError("x"), where="collate_fn", index=None), "raw")
    assert failure.message.startswith("The collate function raised in worker 3")


def test_a_collate_function_that_raised_names_the_samples_of_its_batch():
    error = user_code_error(ValueError("x"), where="collate_fn", index=[3, 17])
    assert explain_loader_failure(error, "raw").message.startswith(
        "The collate function raised for the samples [3, 17] in worker 3, experiment raw"
    )


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("DataLoader timed out after 300 seconds", "no batch for a long time", "py-spy dump"),
        ("DataLoader worker (pid 7) is killed by signal: Killed. ", "A worker died of SIGKILL,", "out-of-memory"),
        ("DataLoader worker (pid 7) is killed by signal: Segmentation fault. ", "of SIGSEGV,", "PYTHONFAULTHANDLER"),
        ("DataLoader worker (pid(s) 7, 8) exited unexpectedly", "A worker died, ", "fewer workers"),
        ("DataLoader worker (pid(s) 7) exited unexpectedly: SIGKILL", "A worker died of SIGKILL,", "out-of-memory"),
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
        ("received 0 items of ancdata", "descriptors", "ulimit -n"),
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


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("stack expects each tensor to be equal size, but got [3, 4] at entry 0 and [3, 5] at entry 1", "pads them"),
        ("default_collate: batch must contain tensors or lists; found <class 'NoneType'>", "a sample is None"),
        ("object of type 'NoneType' has no len()", "a sample is None"),
    ],
)
def test_samples_that_make_no_batch_have_remedies_of_their_own(text, remedy):
    error = user_code_error(RuntimeError(text), where="collate_fn", index=None)
    failure = explain_loader_failure(error, "observing")
    assert remedy in failure.remedy
    assert "in worker 3, experiment raw: RuntimeError" in failure.message  # its mode says which one


def test_what_is_done_before_the_experiments_is_told_in_words():
    failure = explain_loader_failure(user_code_error(ValueError("x"), mode=modes.RECORD | modes.ALL), "raw")
    assert "in worker 3, while samples were recorded: ValueError" in failure.message


def test_a_job_that_cannot_be_pickled():
    def local():
        pass

    try:
        pickle.dumps(local)
    except Exception as error:  # of another type in each Python
        failure = explain_loader_failure(error, "raw")
    assert failure.message.startswith("The job cannot be sent to its workers: ")
    assert "no lambdas" in failure.remedy


def test_a_worker_init_fn_that_raised():
    failure = explain_loader_failure(user_code_error(ValueError("x"), where="worker_init_fn", index=None), "raw")
    assert failure.message.startswith("worker_init_fn raised in worker 3")


def test_an_exception_whose_text_fails_is_told_by_its_kind():
    class Mute(Exception):
        def __str__(self):
            raise OSError

    assert "Mute" in explain_loader_failure(caught(Mute()), "raw").message
    assert "Mute" in explain_step_failure(caught(Mute()), "raw").message


@pytest.mark.parametrize("error", [KeyboardInterrupt(), TimeLimitExceeded()])
def test_what_is_not_the_users_passes(error):
    with pytest.raises(type(error)), loader_failures("raw"):
        raise error


def test_any_other_error_of_the_loader_is_shown():
    failure = explain_loader_failure(caught(OSError("odd\nthing")), "raw")
    assert failure.message == "The loader raised, experiment raw: OSError: odd"
    assert "OSError: odd" in failure.details


def test_full_shared_memory_is_told_also_where_the_users_code_ran_into_it():
    error = user_code_error(RuntimeError("unable to allocate shared memory(shm) for file </torch_1>"))
    assert "/dev/shm" in explain_loader_failure(error, "raw").remedy


def test_a_step_that_raised():
    failure = explain_step_failure(caught(ValueError("shapes differ")), "device")
    assert failure.message == "The train step raised, experiment device: ValueError: shapes differ"
    assert failure.details.count("ValueError: shapes differ") == 1
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


def test_an_empty_loader():
    with pytest.raises(Exception, match="gave no batch") as raised, loader_failures("raw"):
        raise LoaderEnded
    assert "len(dataset)" in raised.value.remedy


def test_our_own_frames_are_left_out_of_the_users_traceback():
    from bottleneck.measure.caches import BatchCache, CachedBatch

    def step(batch):
        raise ValueError("mine")

    try:
        BatchCache([CachedBatch(1, 1)]).probe(step)
    except ValueError as error:
        details = explain_step_failure(error, "device").details
    assert "in step" in details
    assert "in probe" not in details
