"""The process is as it was: random numbers, flags, warnings, environment, signal handlers."""

import gc
import multiprocessing
import os
import random
import signal
import threading
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data._utils import signal_handling

from bottleneck.measure.keep.interrupts import interrupts_deferred
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


def settings():
    cudnn = torch.backends.cudnn
    return (
        cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32,
        torch.get_float32_matmul_precision(), torch.get_deterministic_debug_mode(), torch.get_default_dtype(),
        torch.get_num_threads(), torch.is_grad_enabled(), torch.multiprocessing.get_sharing_strategy(), gc.isenabled(),
        list(warnings.filters),
    )  # fmt: skip


def test_settings_go_back():
    before = settings()
    with preserved() as kept:
        for name in ("enabled", "benchmark", "deterministic", "allow_tf32"):
            setattr(torch.backends.cudnn, name, not getattr(torch.backends.cudnn, name))
        torch.set_float32_matmul_precision("medium")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(before[8] + 1)
        torch.set_grad_enabled(False)
        torch.multiprocessing.set_sharing_strategy("file_system")
        gc.disable()
        warnings.simplefilter("error")
        assert not any(now == was for now, was in zip(settings(), before, strict=True))
    assert settings() == before
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


# --- ctrl-C while things are put in order takes effect afterwards, and is not lost -------------------------


def test_ctrl_c_takes_effect_after_the_body():
    before, done = signal.getsignal(signal.SIGINT), []
    with pytest.raises(KeyboardInterrupt), interrupts_deferred():
        signal.raise_signal(signal.SIGINT)
        done.append("all of it")
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_handler_that_the_body_sets_stays_and_answers():
    before, answered = signal.getsignal(signal.SIGINT), []
    try:
        with interrupts_deferred():
            signal.raise_signal(signal.SIGINT)
            signal.signal(signal.SIGINT, lambda number, _: answered.append(number))
        assert answered == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)
