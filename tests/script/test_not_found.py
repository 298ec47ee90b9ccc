"""A script in which nothing can be measured is told why: its loaders, its ranks."""

import itertools
import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import multiprocessing
from torch.utils.data import DataLoader, TensorDataset

import bottleneck
from bottleneck.errors import MeasurementError, UsageError
from bottleneck.script import inside
from bottleneck.script.not_found import FoundMeanwhile, Notice, OwnRanks, check_group, not_found
from bottleneck.script.watch import Watch
from tests.support.watched_factory import make_watched_result


def loader_of(items):
    return DataLoader(TensorDataset(torch.zeros(items)), batch_size=2)


@pytest.fixture
def script():
    """A script under watch, and what it has been told."""
    watch = Watch(lambda *_: iter(["fed"] * 3).__next__, 3)
    parameter = torch.nn.Parameter(torch.zeros(1))
    told = []
    made = SimpleNamespace(watch=watch, parameter=parameter, optimizer=torch.optim.SGD([parameter]), told=told)
    made.notice = Notice(watch, lambda: not_found(watch), told.append)
    with watch:
        yield made


def train(script, batches, most=None):
    for _ in itertools.islice(batches, most):
        script.parameter.square().sum().backward()
        script.optimizer.step()


def test_a_script_without_a_loop_is_told_what_was_seen_on_a_line_of_its_own(script):
    script.notice.look()
    assert script.told == [
        "\nNothing to measure so far, after 30 s. The script continues, and is measured as soon as it trains. If it "
        "already trains: The script iterated over no PyTorch DataLoader. Seen: no DataLoader; 0 optimizer steps, 0 "
        "backward passes. Wrap what the loop takes its batches from: `for batch in bottleneck.watch(batches):`. If a "
        "function makes each batch, wrap the function, and call it as before: `get_batch = "
        "bottleneck.watch(get_batch)`."
    ]


def test_a_script_that_trains_without_a_loader_is_not_told_to_wait_until_it_does(script):
    train(script, range(200))
    script.notice.look()
    assert script.told[0].startswith(
        "\nNothing to measure so far, after 30 s, although the script trains. It continues; end it with Ctrl-C. The "
        "script iterated over no PyTorch DataLoader. Seen: no DataLoader; 200 optimizer steps, 200 backward passes. "
        "Wrap what"
    )


def evaluate(script):
    list(loader_of(2))
    for _ in range(4):
        list(loader_of(6))


def train_on_nothing(script):
    train(script, range(200))


def train_on_a_list(script):
    list(loader_of(6))
    script.optimizer.step()
    train(script, range(200))


def train_on_wrapped(script):
    list(bottleneck.watch([1, 2]))


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (
            evaluate,
            "No PyTorch optimizer made a step, and there was no backward pass. Seen: TensorDataset (1 batch), "
            "TensorDataset (3 batches), TensorDataset (3 batches), 2 more loaders; 0 optimizer steps, 0 backward "
            "passes. If the loop only evaluates, or trains in another way, wrap its loader: "
            "`for batch in bottleneck.watch(loader):`.",
        ),
        (
            train_on_nothing,
            "The script iterated over no PyTorch DataLoader. Seen: no DataLoader; 200 optimizer steps, 200 "
            "backward passes. Wrap what",
        ),
        (
            train_on_a_list,
            "Hardly any batch of a DataLoader was followed by a training step. Seen: TensorDataset (3 batches); "
            "201 optimizer steps, 200 backward passes. Wrap what",
        ),
        (train_on_wrapped, "too few training steps"),
    ],
)
def test_what_was_seen_and_the_line_to_add_are_said(script, run, said):
    run(script)
    assert said in str(not_found(script.watch))


@pytest.mark.parametrize(("run", "trains_there"), [(lambda script: None, True), (train_on_nothing, False)])
def test_a_script_with_processes_trains_in_them_unless_it_trains_here(script, run, trains_there):
    run(script)
    assert ("If it trains there" in str(not_found(script.watch, started=["int"]))) == trains_there


def test_a_process_that_may_have_trained_is_named(script):
    told = str(not_found(script.watch, started=["worker", "worker", "python child.py"]))
    assert (
        "in its first process, and the processes that it started (worker, python child.py) are not watched. Seen: "
        "no DataLoader; 0 optimizer steps, 0 backward passes. If it trains there, use an option of the script to train "
        "in the first process; or diagnose that: bottleneck run child.py ARGS."
    ) in told


def test_processes_that_have_ended_are_remembered_by_name():
    with OwnRanks(refuse) as ranks:
        assert ranks.started == []
        process = multiprocessing.get_context("fork").Process(target=int)
        process.start()
        process.join()
        for command in ([sys.executable, "-u", "-m", "this", "--lr"], f"{sys.executable} -m this", ["true", "a.py"]):
            subprocess.run(command, shell=isinstance(command, str), stdout=subprocess.DEVNULL, check=True)
    python = os.path.basename(sys.executable)
    assert ranks.started == ["int", f"{python} -m this", f"{python} -m this"]
    subprocess.run([sys.executable, "--version"], stdout=subprocess.DEVNULL, check=True)
    assert len(ranks.started) == 3


def test_a_loop_that_comes_nearer_is_looked_at_again_before_it_is_told(script):
    train(script, loader_of(4))
    assert script.notice.look()
    assert script.told == []
    assert not script.notice.look()
    assert "after 60 s" in script.told[0]
    assert "too few training steps" in script.told[0]


def test_a_loop_that_is_fed_is_told_nothing(script):
    train(script, loader_of(20))
    assert not script.notice.look()
    assert script.told == []


class Refused(Exception):
    """Stands for the end of the script."""


def refuse(error):
    raise Refused(str(error))


def test_a_single_rank_runs_in_the_scripts_own_process():
    seen, start = [], multiprocessing.spawn
    with OwnRanks(refuse):
        multiprocessing.spawn(lambda rank, more: seen.append((rank, more, os.getpid())), args=("data",), nprocs=1)
    assert seen == [(0, "data", os.getpid())]
    assert multiprocessing.spawn is start


def test_several_ranks_are_refused_before_any_is_started():
    start = multiprocessing.start_processes
    with pytest.raises(Refused, match="in 2 processes that it starts"), OwnRanks(refuse):
        multiprocessing.spawn(print, nprocs=2)
    assert multiprocessing.start_processes is start


@pytest.mark.parametrize(
    ("environment", "world"), [({}, 1), ({}, 4), ({"WORLD_SIZE": "4"}, 4), ({"WORLD_SIZE": "1"}, 1)]
)
def test_one_process_and_the_ranks_of_a_group_are_diagnosed(environment, world):
    check_group(world, environment)


@pytest.mark.parametrize("name", ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_processes_of_a_launcher_that_know_nothing_of_each_other_are_refused(name):
    # Guards: all would diagnose themselves at the same time, and write the same report.
    with pytest.raises(UsageError, match=f"{name} is 4, and the script has joined no process group"):
        check_group(1, {name: "4"})


# --- what cannot be fed is watched ---------------------------------------------------------------------------------


@pytest.fixture
def looking(script):
    """The same script, with a look inside that is invented; each is noted with what it was told."""
    script.looks, script.found = [], None

    def look_inside(seconds, trains_here, pause):
        script.looks.append(trains_here)
        return None if script.found is None else lambda: script.told.append(script.found)

    script.notice = Notice(script.watch, lambda: not_found(script.watch), script.told.append, look_inside)
    script.notice._over = SimpleNamespace(wait=lambda seconds: False, set=lambda: None)  # no time passes
    return script


def one_look(script):
    return script.notice.look(script.notice._watched())


def test_a_script_that_trains_without_a_loader_ends_with_what_was_seen(looking):
    train(looking, range(200))
    looking.found = "a verdict"
    one_look(looking)
    assert looking.looks == [True]
    assert looking.told == ["a verdict"]


def test_a_script_in_which_nothing_was_seen_is_told_once_and_looked_at_again(looking):
    assert one_look(looking)
    assert one_look(looking)
    train(looking, range(5))
    assert one_look(looking)
    assert looking.looks == [False, False, True]
    assert len(looking.told) == 1


def test_steps_that_were_made_before_the_last_look_are_no_training_now(looking):
    train(looking, range(5))
    one_look(looking)
    one_look(looking)
    assert looking.looks == [True, False]


def test_a_loop_that_comes_nearer_is_not_watched(looking):
    train(looking, loader_of(4))
    assert one_look(looking)
    assert (looking.looks, looking.told) == ([], [])


def test_a_watch_ends_where_a_loop_is_found_meanwhile(looking):
    train(looking, loader_of(20))
    with pytest.raises(FoundMeanwhile):
        one_look(looking)
    assert looking.told == []


def result_of(*pids):
    made = make_watched_result()
    return replace(made, ranks=tuple(replace(made.ranks[0], pid=pid) for pid in pids))


@pytest.mark.parametrize(
    ("trains_here", "pids", "counts"),
    [(True, [os.getpid()], True), (False, [os.getpid()], False), (False, [4711], True)],
)
def test_a_training_here_or_in_a_child_is_an_answer(monkeypatch, trains_here, pids, counts):
    monkeypatch.setattr(inside, "attach", lambda pid, seconds, pause: result_of(*pids))
    monkeypatch.setattr(inside.psutil.Process, "children", lambda self: ["a child"])
    assert (inside.watch_inside(14.0, trains_here, lambda _: None) is not None) == counts


def test_a_process_that_may_not_be_looked_into_is_no_fault(monkeypatch):
    def attach(*_, **__):
        raise MeasurementError("py-spy cannot look into it.")

    monkeypatch.setattr(inside, "attach", attach)
    assert inside.watch_inside(14.0, True, lambda _: None) is None


def test_neither_a_rank_nor_a_process_in_which_nothing_trains_is_watched(monkeypatch):
    paused = []
    monkeypatch.setattr(inside, "attach", None)
    monkeypatch.setattr(inside.psutil.Process, "children", lambda self: [])
    assert inside.watch_inside(14.0, False, paused.append) is None
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert inside.watch_inside(14.0, True, paused.append) is None
    assert paused == [14.0, 14.0]
