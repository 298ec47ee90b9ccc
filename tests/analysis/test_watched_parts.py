"""Parts of the observing verdict: shares with their intervals, lines that make input, commands that prove."""

from __future__ import annotations

import random

import pytest

from bottleneck.analysis.watched.commands import command_that_proves, script_of
from bottleneck.analysis.watched.loops import Marks, Source, parsed
from bottleneck.analysis.watched.shares import share_of
from bottleneck.results.records import Interval
from tests.support.watched_factory import make_process

# --- shares -----------------------------------------------------------------------------------------------------


def in_runs(draw: random.Random, count: int, share: float, length: float) -> list[bool]:
    """Samples of a loop of which each is drawn anew only once in so many."""
    flags, state = [], draw.random() < share
    for _ in range(count):
        flags.append(state)
        leave = (1 - share if state else share) / length
        state ^= draw.random() < leave
    return flags


@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize("length", [1.0, 8.0])
def test_intervals_hold_the_truth_nine_times_in_ten_also_where_samples_come_in_runs(share, length):
    draw = random.Random(1)
    found = [share_of(in_runs(draw, 800, share, length)) for _ in range(200)]
    assert sum(one.low <= share <= one.high for one in found) >= 180


def test_samples_in_runs_count_for_less_than_as_many_independent_ones():
    alone, runs = [False, True] * 200, ([False] * 20 + [True] * 20) * 10
    widths = [found.high - found.low for found in map(share_of, (alone, runs))]
    assert widths[1] > 2 * widths[0]


def test_no_samples_say_nothing_and_alike_samples_do_not_say_never():
    assert share_of([]) == Interval(0.0, 0.0, 1.0)
    never = share_of([False] * 400)
    assert never.estimate == never.low == 0.0
    assert 0.0 < never.high < 0.05


# --- lines that make the input -----------------------------------------------------------------------------------


def lines_of(text: str, marks: Marks) -> set[int]:
    return set(Source(text).input_lines(marks))


def test_what_reaches_the_forward_pass_is_input_and_what_does_not_is_none():
    text = (
        "for step in range(9):\n"
        "    rows = read(step)\n"
        "    x = pack(rows)\n"
        "    lr = schedule(step)\n"
        "    loss = model(x)\n"
        "    loss.backward()\n"
        "    log(loss)\n"
    )
    assert lines_of(text, Marks(forward={5: False}, other={6})) == {1, 2, 3}


def test_a_target_of_several_names_is_followed():
    text = "while True:\n    (x, *more), y = get()\n    loss = model(x, y)\n"
    assert lines_of(text, Marks(forward={3: False})) == {2}


def test_asking_twice_gives_the_same():
    source, marks = Source("while True:\n    x, y = get()\n    loss = model(x, y)\n"), Marks(forward={3: False})
    assert source.input_lines(marks) == source.input_lines(marks) == {2: False}


def test_a_model_that_takes_no_time_is_found_by_its_backward_pass():
    text = (
        "while True:\n"
        "    seen = env.step(action)\n"
        "    rows.append(seen)\n"
        "    states = torch.stack(rows)\n"
        "    loss = policy(states).mean()\n"
        "    loss.backward()\n"
    )
    # Of lines that PyTorch may run for the model, only other code is input.
    assert Source(text).input_lines(Marks(other={6})) == dict.fromkeys((2, 3, 4, 5), True)


def test_what_is_put_into_a_buffer_comes_out_of_it():
    text = (
        "while True:\n"
        "    seen, reward = env.step(action)\n"
        "    self.buffer.add(seen, reward)\n"
        "    losses.append(loss)\n"
        "    loss = model(self.buffer.sample(8))\n"
    )
    assert lines_of(text, Marks(forward={5: False})) == {2, 3}


def test_attributes_are_followed_too():
    text = "def fit(self):\n    while 1:\n        self.batch = self.make()\n        loss = self.model(self.batch)\n"
    assert lines_of(text, Marks(forward={4: False})) == {3}


def test_a_file_that_is_no_python_of_this_version_is_left_out():
    assert list(parsed({"a.py": "x = 1\n", "b.py": "x ==== 1\n", "c.py": "\0"})) == ["a.py"]


def applied(text: str, line: int) -> str:
    """The file with the edit, as somebody would make it."""
    edit = Source(text).edit_at(line)
    lines = text.splitlines()
    indent = lines[edit.line - 1][: -len(lines[edit.line - 1].lstrip())]
    lines[edit.line - 1] = f"{indent}{edit.after}"
    return "\n".join([edit.above, *lines] if edit.above else lines)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("for _ in range(4):\n    x, y = get('train')\n    seen.append(x + y)\n", 2),
        ("for _ in range(4):\n    x, y = get_plain()\n    seen.append(x + y)\n", 2),
        ("for x, y in pairs():\n    seen.append(x + y)\n", 1),
        ("for step, (x, y) in enumerate(pairs()):\n    seen.append(x + y)\n", 1),
    ],
)
def test_a_file_with_its_edit_does_what_it_did(text, line):
    import bottleneck

    def run(source: str) -> list[int]:
        names = {"seen": [], "get": lambda split: (1, 2), "get_plain": lambda: (1, 2), "bottleneck": bottleneck}
        names["pairs"] = lambda: iter([(1, 2)] * 4)
        exec(source, names)
        return names["seen"]

    assert "bottleneck.watch" in applied(text, line)
    assert run(applied(text, line)) == run(text) == [3, 3, 3, 3]


def test_a_call_that_uses_what_the_loop_changes_has_no_edit():
    text = "for step in range(4):\n    x = get(step)\n    loss = model(x)\n"
    assert Source(text).edit_at(2) is None


# --- the command that proves it -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "script"),
    [
        (["python", "train.py", "-x", "1"], ["train.py", "-x", "1"]),
        (["python3.12", "-u", "-W", "ignore", "-X", "dev", "train.py"], ["train.py"]),
        (["python", "-m", "package.train", "--lr", "1"], ["-m", "package.train", "--lr", "1"]),
        (["python", "-mpackage.train"], ["-m", "package.train"]),
        (["python", "/venv/bin/bottleneck", "run", "--budget", "1m", "train.py", "a"], ["train.py", "a"]),
        (["python", "-m", "bottleneck", "run", "-m", "package.train"], ["-m", "package.train"]),
        (["python", "-c", "train()"], []),
        (["python", "-m", "ipykernel_launcher", "-f", "kernel.json"], []),
        (["python", "-"], []),
        (["python"], []),
        ([], []),
    ],
)
def test_the_script_of_a_command(command, script):
    assert list(script_of(command)) == script


def test_a_rank_is_proved_by_its_launcher():
    launcher = make_process(9, command=("python", "/venv/bin/torchrun", "--nproc-per-node", "8", "train.py", "-x"))
    rank = make_process(10, parent=9, command=("python", "-u", "train.py", "-x"))
    assert command_that_proves(rank, {9: launcher, 10: rank}) == (
        *("torchrun", "--nproc-per-node", "8", "-m", "bottleneck", "run", "train.py", "-x"),
    )


def test_a_notebook_has_no_command():
    kernel = make_process(10, command=("python", "-m", "ipykernel_launcher", "-f", "kernel.json"))
    assert command_that_proves(kernel, {10: kernel}) == ()
