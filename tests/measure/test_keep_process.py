"""The process is as it was: random numbers, flags, warnings, environment, signal handlers."""

import gc
import multiprocessing
import os
import random
import signal
import threading
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data._utils import signal_handling

from bottleneck.measure.keep import process
from bottleneck.measure.keep.preserved import preserved


def draw():
    return random.random(), np.random.rand(), np.random.randn(), torch.rand(1).item()


@pytest.mark.parametrize("fails", [False, True])
def test_random_numbers_go_on_where_they_were(fails):
    np.random.randn()  # leaves a second normal number waiting, which is part of the state
    with preserved():
        expected = draw()
    try:
        with preserved():
            random.seed(1)
            np.random.seed(2)
            torch.manual_seed(3)
            draw()
            if fails:
                raise ValueError
    except ValueError:
        pass
    assert draw() == expected


@pytest.mark.parametrize("broken", [{}, {"get_rng_state": None}])
def test_an_accelerator_whose_random_numbers_cannot_be_had_is_left_alone(broken, monkeypatch):
    def fail():
        raise AssertionError

    module = SimpleNamespace(**dict.fromkeys(broken, fail), **{"set_rng_state": print} if broken else {})
    monkeypatch.setattr(process, "accelerators", lambda device: [("hpu", module)])
    with preserved():
        pass


SETTINGS = {
    "cudnn.benchmark": (
        lambda: torch.backends.cudnn.benchmark,
        lambda value: setattr(torch.backends.cudnn, "benchmark", value),
    ),
    "cudnn.deterministic": (
        lambda: torch.backends.cudnn.deterministic,
        lambda value: setattr(torch.backends.cudnn, "deterministic", value),
    ),
    "cudnn.enabled": (
        lambda: torch.backends.cudnn.enabled,
        lambda value: setattr(torch.backends.cudnn, "enabled", value),
    ),
    "cudnn.allow_tf32": (
        lambda: torch.backends.cudnn.allow_tf32,
        lambda value: setattr(torch.backends.cudnn, "allow_tf32", value),
    ),
    "grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "autocast": (
        lambda: torch.is_autocast_enabled("cpu"),
        lambda value: torch.set_autocast_enabled("cpu", value),
    ),
    "anomaly mode": (torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    "deterministic": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    "garbage collection": (gc.isenabled, lambda value: gc.enable() if value else gc.disable()),
}


@pytest.mark.filterwarnings("ignore:Anomaly")
@pytest.mark.parametrize("name", SETTINGS)
def test_switches_go_back(name):
    get, put = SETTINGS[name]
    before = get()
    with preserved() as kept:
        put(not before)
        assert get() != before
    assert get() == before
    assert kept.notes == []


def test_values_go_back():
    def settings():
        return (
            torch.get_default_dtype(),
            torch.get_num_threads(),
            torch.get_float32_matmul_precision(),
            torch.backends.cuda.matmul.allow_tf32,
            torch.get_autocast_dtype("cpu"),
            torch.multiprocessing.get_sharing_strategy(),
        )

    before = settings()
    with preserved() as kept:
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(before[1] + 1)
        torch.set_float32_matmul_precision("medium")
        torch.set_autocast_dtype("cpu", torch.float16)
        torch.multiprocessing.set_sharing_strategy("file_system")
    assert settings() == before
    assert kept.notes == []


@pytest.mark.skipif(not hasattr(torch.backends.cudnn, "conv"), reason="this torch has no fp32_precision")
def test_the_newer_precision_flags_go_back():
    before = (torch.backends.cudnn.conv.fp32_precision, torch.get_float32_matmul_precision())
    with preserved() as kept:
        torch.backends.cudnn.conv.fp32_precision = "ieee"
        torch.backends.cuda.matmul.fp32_precision = "tf32"
    assert (torch.backends.cudnn.conv.fp32_precision, torch.get_float32_matmul_precision()) == before
    assert kept.notes == []


def test_an_open_start_method_stays_open():
    chosen = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method(None, force=True)
    try:
        with preserved():
            multiprocessing.set_start_method("spawn")
        assert multiprocessing.get_start_method(allow_none=True) is None
    finally:
        multiprocessing.set_start_method(chosen, force=True)


def test_warnings_go_back():
    filters, content, show = warnings.filters, list(warnings.filters), warnings.showwarning
    with preserved():
        warnings.filters = [("ignore", None, Warning, None, 0)]
        content_inside = list(filters)
        filters.insert(0, ("error", None, Warning, None, 0))
        warnings.showwarning = print
    assert content_inside == content
    assert warnings.filters is filters
    assert list(filters) == content
    assert warnings.showwarning is show


def test_what_a_filter_had_decided_is_forgotten_with_it():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with preserved():
            warnings.simplefilter("ignore")
            warnings.warn("twice", stacklevel=1)
        warnings.warn("twice", stacklevel=1)
    assert [str(each.message) for each in caught] == ["twice"]


def test_environment_and_working_directory_go_back(monkeypatch, tmp_path):
    monkeypatch.setenv("KEPT", "1")
    monkeypatch.setenv("REMOVED", "2")
    before, directory = dict(os.environ), os.getcwd()
    with preserved():
        os.environ["KEPT"] = "3"
        os.environ["ADDED"] = "4"
        del os.environ["REMOVED"]
        os.chdir(tmp_path)
    assert dict(os.environ) == before
    assert os.getcwd() == directory


def test_a_working_directory_that_is_gone_is_noted(monkeypatch, tmp_path):
    home, gone = os.getcwd(), tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    with preserved() as kept:
        os.chdir(home)
        gone.rmdir()
    (note,) = kept.notes
    assert note.startswith("the working directory could not be put back as it was (FileNotFoundError")


def test_signal_handlers_go_back():
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    with preserved():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before


def test_the_handler_of_the_first_loader_goes_and_can_come_again(monkeypatch):
    previous = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    monkeypatch.setattr(signal_handling, "_SIGCHLD_handler_set", False)
    try:
        with preserved():
            signal_handling._set_SIGCHLD_handler()
            assert signal.getsignal(signal.SIGCHLD) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL
        signal_handling._set_SIGCHLD_handler()
        assert signal.getsignal(signal.SIGCHLD) is not signal.SIG_DFL
    finally:
        signal.signal(signal.SIGCHLD, previous)


def test_in_another_thread_all_but_the_signals_goes_back():
    model = nn.Linear(1, 1)
    weight = model.weight.item()
    notes = []

    def diagnose():
        with preserved(model=model) as kept:
            model.weight.data.zero_()
        notes.append(kept.notes)

    thread = threading.Thread(target=diagnose)
    thread.start()
    thread.join()
    assert model.weight.item() == weight
    assert notes == [[]]


@pytest.mark.integration
def test_a_real_loop_with_workers_leaves_nothing():
    loader = DataLoader(list(range(8)), batch_size=2, num_workers=1)
    with preserved(loader=loader) as kept:
        assert len(list(loader)) == 4
    assert kept.notes == []
