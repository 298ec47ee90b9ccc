"""The observing verdict: what stacks that were recorded say of a job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bottleneck.analysis.watched.judge import judge
from bottleneck.errors import MeasurementError
from tests.support.watched_factory import (
    BACKWARD,
    DATA,
    FORWARD,
    IDLES,
    LIB,
    LOADER,
    MAIN,
    OPTIMIZER,
    SCRIPT,
    TORCH,
    WAITS,
    WORKS,
    at,
    loop_of,
    make_job,
    make_process,
    make_watched,
    mixed,
)


def judged(watched):
    return judge(watched, "2025-01-31T12:00:00+00:00")


# --- the state ------------------------------------------------------------------------------------------------


def test_a_loop_that_waits_is_input_bound_with_its_workers_line():
    found = judged(make_job(waits=300, trains=200, busy=480, idle=20))
    assert found.verdict.state == "input_bound"
    assert found.verdict.basis == "watched"
    assert found.verdict.input_share.estimate == pytest.approx(0.6)
    assert found.verdict.input_share.low < 0.6 < found.verdict.input_share.high < 0.7
    assert found.workers.count == 1
    assert found.workers.busy_share.estimate == pytest.approx(0.96)
    costliest = next(line for line in found.lines if line.process == "worker")
    assert (costliest.file, costliest.line, costliest.share) == (DATA, 12, 1.0)
    assert found.verdict.sentence.startswith("The loop waits for batches 60 % (")
    assert "the queue is empty" in found.verdict.sentence
    assert "data.py:12" in found.verdict.sentence


def test_the_gain_is_only_an_upper_bound_and_the_command_that_proves_it_is_given():
    found = judged(make_job(waits=300, trains=200, busy=480, idle=20))
    assert found.at_most == pytest.approx(1 / (1 - found.verdict.input_share.high))
    assert "at most" in found.verdict.sentence
    assert found.next == (("bottleneck", "run", "train.py", "--epochs", "3"),)


def test_a_loop_that_trains_all_the_time_is_device_bound_and_needs_no_proof():
    found = judged(make_job(waits=4, trains=996, busy=300, idle=700))
    assert found.verdict.state == "device_bound"
    assert found.at_most is None
    assert found.next == ()
    assert found.verdict.sentence.startswith("The loop trains: its input takes 0.4 % (")
    assert "the queue is full" in found.verdict.sentence


def test_a_share_at_the_border_is_undecided_and_says_how_to_decide_it():
    found = judged(make_job(waits=14, trains=186, busy=190, idle=10))
    assert found.verdict.state == "undecided"
    assert found.verdict.sentence.endswith("Watch for longer: --seconds 60.")
    assert found.next


def test_the_interval_shrinks_with_the_number_of_samples():
    few, many = (judged(make_job(waits=3 * n, trains=2 * n, busy=n)).verdict.input_share for n in (20, 500))
    assert many.high - many.low < 0.4 * (few.high - few.low)


def test_without_workers_the_loop_makes_its_batches_itself_at_the_datasets_line():
    found = judged(make_job(makes=300, trains=200))
    assert found.verdict.state == "input_bound"
    assert found.workers is None
    assert (found.lines[0].process, found.lines[0].file, found.lines[0].line) == ("main", DATA, 12)
    assert found.ranks[0].makes_share.estimate == pytest.approx(0.6)
    assert "makes its batches itself" in found.verdict.sentence


def test_workers_that_idle_while_the_loop_waits_are_told():
    found = judged(make_job(waits=300, trains=200, busy=100, idle=400))
    assert "the loop waits for something else" in found.verdict.sentence


def test_a_busy_device_bounds_what_the_input_can_take():
    job = make_job(waits=300, trains=200, busy=480, idle=20)
    main = replace(job.processes[0], on_accelerator=True, device_busy=0.99)
    found = judged(make_watched(main, *job.processes[1:]))
    assert found.verdict.state == "device_bound"
    assert found.verdict.input_share.estimate == pytest.approx(0.03)


def test_ranks_are_told_the_one_that_waits_the_most_first():
    ranks = [
        make_process(100 + rank, loop_of(waits=waits, trains=500 - waits), parent=99, rank=rank)
        for rank, waits in enumerate((20, 30, 300, 25))
    ]
    found = judged(make_watched(*ranks))
    assert [rank.rank for rank in found.ranks] == [2, 1, 3, 0]
    assert found.verdict.sentence.startswith("Of 4 ranks, rank 2 waits the most")


def test_processes_that_train_and_are_no_ranks_are_called_by_their_pid():
    both = [make_process(pid, loop_of(waits=300, trains=200)) for pid in (100, 200)]
    assert judged(make_watched(*both)).verdict.sentence.startswith("Of 2 processes that train, PID 100 waits the most")


# --- loops without a DataLoader ---------------------------------------------------------------------------------

GET_BATCH = """\
def main():
    model = Model()
    while True:
        x, y = get_batch("train")
        loss = model(x, y)
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(loss.item())
"""
CALL = at(SCRIPT, 4, "main")
MAKES_BATCH = (CALL, at(SCRIPT, 30, "get_batch"))
STEP = tuple(
    (at(SCRIPT, line, "main"), stack[-1]) for line, stack in ((5, FORWARD), (6, BACKWARD), (7, OPTIMIZER))
)  # fmt: skip


def test_a_function_that_makes_each_batch_is_input_with_the_edit_that_lets_it_be_measured():
    stacks = mixed({MAKES_BATCH: 300, **dict.fromkeys(STEP, 60), (at(SCRIPT, 9, "main"),): 20})
    found = judged(make_watched(make_process(100, stacks), sources={SCRIPT: GET_BATCH}))
    assert found.verdict.input_share.estimate == pytest.approx(0.6)
    assert (found.lines[0].line, found.lines[0].function) == (30, "get_batch")
    assert (found.edit.line, found.edit.before) == (4, 'x, y = get_batch("train")')
    assert found.edit.after == "x, y = next(batches)"
    assert found.edit.above == 'batches = bottleneck.watch(lambda: get_batch("train"))'


def test_a_torn_sample_does_not_hide_the_input():
    # The process is sampled without being stopped: outer frames of one moment, inner frames of another.
    torn = (CALL, at(SCRIPT, 29, "get_batch"), *FORWARD)
    stacks = mixed({MAKES_BATCH: 300, **dict.fromkeys(STEP, 60), torn: 1, (at(SCRIPT, 9, "main"),): 19})
    found = judged(make_watched(make_process(100, stacks), sources={SCRIPT: GET_BATCH}))
    assert found.verdict.input_share.estimate == pytest.approx(0.6)
    assert found.edit.line == 4


def test_input_is_seen_where_the_training_takes_a_hundredth():
    outer = at(SCRIPT, 40, "<module>")
    stacks = mixed({(outer, *MAKES_BATCH): 990, **{(outer, *stack): 4 for stack in STEP}})
    found = judged(make_watched(make_process(100, stacks), sources={SCRIPT: GET_BATCH + "\n" * 30 + "main()\n"}))
    assert found.verdict.input_share.estimate == pytest.approx(0.99, abs=0.01)


def test_a_thread_that_works_ahead_is_told_with_its_line():
    waiting = (CALL, at(f"{LIB}/queue.py", 170, "Queue.get"), at(f"{LIB}/threading.py", 355, "Condition.wait"))
    reads = (at(f"{LIB}/threading.py", 1012, "Thread._bootstrap"), at("/job/ahead.py", 7, "Ahead.fill"))
    process = make_process(100, mixed({waiting: 200, **dict.fromkeys(STEP, 100)}), mixed({reads: 480}))
    found = judged(make_watched(process, sources={SCRIPT: GET_BATCH}))
    assert found.ranks[0].waits_share.estimate == pytest.approx(0.4)
    assert found.workers.count == 1
    ahead = next(line for line in found.lines if line.thread)
    assert (ahead.file, ahead.line, ahead.thread) == ("/job/ahead.py", 7, "Thread-1")


RL = """\
def main():
    while True:
        action = policy(obs)
        obs, reward = env.step(action)
        loss = policy(obs).mean()
        loss.backward()
"""


def test_a_simulator_is_input_also_where_it_uses_what_the_model_gave():
    simulates = (at(SCRIPT, 4, "main"), at("/job/env.py", 40, "Env.step"))
    acts = (at(SCRIPT, 3, "main"), FORWARD[-1])
    trains = (at(SCRIPT, 5, "main"), FORWARD[-1])
    back = (at(SCRIPT, 6, "main"), BACKWARD[-1])
    stacks = mixed({simulates: 250, acts: 50, trains: 100, back: 100})
    found = judged(make_watched(make_process(100, stacks), sources={SCRIPT: RL}))
    assert found.verdict.input_share.estimate == pytest.approx(0.5)
    assert (found.lines[0].file, found.lines[0].line) == ("/job/env.py", 40)
    # Guards: `run` would only watch it, too.
    assert (found.edit, found.next) == (None, ())


def test_a_copy_to_the_device_is_apart_and_no_input_on_an_accelerator():
    source = "def main():\n    for x in batches():\n        x = x.to(device)\n        loss = model(x)\n"
    copies = (at(SCRIPT, 3, "main"),)
    trains = (at(SCRIPT, 4, "main"), FORWARD[-1])
    main = make_process(100, mixed({copies: 300, trains: 200}), on_accelerator=True)
    found = judged(make_watched(main, sources={SCRIPT: source}))
    assert found.ranks[0].copies_share.estimate == pytest.approx(0.6)
    assert found.verdict.state == "device_bound"


# --- no training, or another one's --------------------------------------------------------------------------------


def test_a_process_that_trains_nothing_is_refused_with_what_it_does():
    serves = (at("/job/serve.py", 3, "main"), at(f"{LIB}/selectors.py", 415, "select"))
    with pytest.raises(MeasurementError, match="Nothing trains in process 7") as caught:
        judged(make_watched(make_process(7, [serves] * 100)))
    assert "selectors.py:415" in str(caught.value)
    assert "--seconds 60" in str(caught.value)


def test_a_worker_is_no_training_of_its_own():
    with pytest.raises(MeasurementError, match="Nothing trains"):
        judged(make_watched(make_process(101, mixed({WORKS: 300, IDLES: 200}))))


def test_a_validation_in_another_thread_does_not_hide_the_loop():
    idle = (at(f"{LIB}/threading.py", 355, "Condition.wait"),)
    found = judged(make_watched(make_process(100, [idle] * 500, loop_of(waits=300, trains=200))))
    assert found.verdict.input_share.estimate == pytest.approx(0.6)


def test_a_training_in_a_child_is_found_and_named_with_its_pid():
    parent = make_process(100, [(at(f"{LIB}/subprocess.py", 1264, "Popen.wait"),)] * 400, command=("python", "go.py"))
    child = make_process(200, loop_of(waits=300, trains=200), parent=100, command=("python", "-m", "pkg.train", "x"))
    found = judged(make_watched(parent, child))
    assert found.ranks[0].pid == 200
    assert found.verdict.sentence.startswith("The loop in process 200 waits")
    assert found.next == (("bottleneck", "run", "-m", "pkg.train", "x"),)


def test_what_comes_before_the_first_step_is_not_counted():
    imports = (at(SCRIPT, 1, "<module>"), at("<frozen importlib._bootstrap>", 1176, "_find_and_load"))
    makes_optimizer = (at(SCRIPT, 7, "main"), at(f"{TORCH}/optim/adamw.py", 35, "AdamW.__init__"), imports[1])
    stacks = (*[imports] * 400, *[makes_optimizer] * 100, *loop_of(waits=300, trains=200))
    found = judged(make_watched(make_process(100, stacks)))
    assert found.ranks[0].samples == 500
    assert found.verdict.input_share.estimate == pytest.approx(0.6)


def test_processes_that_only_act_do_not_hide_the_one_that_learns():
    actor = make_process(200, mixed({(at("/job/act.py", 3, "act"), FORWARD[-1]): 300}), parent=100)
    learner = make_process(100, loop_of(waits=100, trains=400))
    assert [rank.pid for rank in judged(make_watched(learner, actor)).ranks] == [100]


def test_a_transform_that_is_a_module_is_no_training():
    transform = at(f"{TORCH}/nn/modules/module.py", 1750, "Module._call_impl")
    inner = at(f"{TORCH[:-5]}torchvision/transforms/v2/_transform.py", 50, "Transform.forward")
    made = (at(SCRIPT, 9, "main"), at(LOADER, 730, "__next__"), at(DATA, 12, "__getitem__"), transform, inner)
    found = judged(make_watched(make_process(100, mixed({made: 300, FORWARD: 100, BACKWARD: 100}))))
    assert found.ranks[0].makes_share.estimate == pytest.approx(0.6)


def test_the_line_of_a_wait_is_the_loops_own():
    found = judged(make_watched(make_process(100, mixed({WAITS: 300, FORWARD: 200}))))
    assert [(line.file, line.line) for line in found.lines] == [(MAIN.file, MAIN.line)]
