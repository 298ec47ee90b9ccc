"""`bottleneck run`: unmodified scripts, in separate processes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import left_in_session

SCRIPTS = Path(__file__).parent / "scripts"
WARM = Path(__file__).parent / "warm.py"

pytestmark = pytest.mark.integration


def run(tmp_path, *arguments, options=("--budget", "12s"), input=None, **settings):
    """Run a command to its end; what it left."""
    command = [sys.executable, "-m", "bottleneck", "run", *options, "--json", "result.json", *map(str, arguments)]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, **settings,
    )  # fmt: skip
    out, err = process.communicate(input, timeout=120)
    return left_by(process.pid, subprocess.CompletedProcess(command, process.returncode, out, err), tmp_path)


def side_by_side(folder, runs):
    """Run commands at the same time, by name: (arguments, options). No test compares their times.

    Torch is imported once for all of them: each takes a core for seconds otherwise.
    """
    commands = []
    for name, (arguments, options) in runs.items():
        (folder / name).mkdir()
        commands.append((str(folder / name), ["run", *options, "--json", "result.json", *map(str, arguments)]))
    (folder / "runs.json").write_text(json.dumps(commands))
    subprocess.run([sys.executable, WARM, folder / "runs.json"], timeout=120, check=True)
    return {name: left_by_one_of_them(folder / name) for name in runs}


def left_by_one_of_them(folder):
    pid, status = map(int, folder.with_name(f"{folder.name}.status").read_text().split())
    out, err = (folder.with_name(f"{folder.name}.{name}").read_text() for name in ("out", "err"))
    return left_by(pid, subprocess.CompletedProcess(folder.name, status, out, err), folder)


def left_by(session, done, folder):
    """Return the output of a command that has ended, and its result; none of its processes may be left."""
    assert not left_in_session(session)
    result = folder / "result.json"
    return done, json.loads(result.read_text()) if result.exists() else None


def diagnosed(tmp_path, *arguments, budgets=("12s", "40s"), **settings):
    """The same, for longer where a busy machine leaves no name, or no time to tell stages apart."""
    for budget in budgets:
        done, result = run(tmp_path, *arguments, options=("--budget", budget), **settings)
        if result is None or "+" not in (result["verdict"]["bottleneck"] or "+"):
            break
    return done, result


def named(result):
    return result["verdict"]["state"], result["verdict"]["bottleneck"]


def test_a_script_is_diagnosed_and_stopped(tmp_path):
    done, result = diagnosed(tmp_path, SCRIPTS / "plain.py", "--epochs", "50", "--checkpoint", "mine.pt")
    assert done.returncode == 0, done.stderr
    assert named(result) == ("input_bound", "augment")
    assert "Bottleneck: augment" in done.stdout
    assert "epoch 0" not in done.stdout  # what the script prints goes where it does not mix with the report
    # Epochs that end before the measuring are the script's own; of what it is fed, nothing is saved.
    assert done.stderr.count("saved mine.pt") == (result["evidence"]["loop"]["between"]["saves"] or 0) <= 3
    assert result["pipeline"]["source"] == "script"


def test_loops_that_take_their_batches_by_hand_are_found(tmp_path):
    # Guards: a learning rate that raises after its last step, in a loop that only we make so long.
    done, result = diagnosed(tmp_path, SCRIPTS / "by_hand.py")
    assert done.returncode == 0, done.stderr
    assert named(result) == ("input_bound", "augment")


def test_what_a_loop_does_besides_training_is_advised_on_with_its_line(tmp_path):
    done, result = run(tmp_path, SCRIPTS / "habits.py")
    assert done.returncode == 0, done.stderr
    given = {item["id"]: item for item in result["advice"]}
    habits = {"after-step", "input-in-loop", "validation", "switch-left-on"}
    assert set(list(given)[:4]) == habits
    lines = (SCRIPTS / "habits.py").read_text().splitlines()
    called = {id: lines[given[id]["evidence"]["line"] - 1] for id in habits - {"switch-left-on"}}
    assert "sleep(0.024)" in called["after-step"]
    assert "sleep(0.012)" in called["input-in-loop"]
    assert called["validation"].strip().startswith("validation =")
    assert "Where the wall clock goes: " in done.stdout


SHOW = """
import json, os, sys
os.chdir("pkg")
print(json.dumps(["SEEN", sys.argv[1:], __name__, __file__, __package__ or "", sys.path[0], sys.stdin.read()]))
"""


@pytest.mark.parametrize("script", [("pkg/train.py",), ("-m", "pkg.train")], ids=["file", "module"])
def test_a_script_sees_what_python_shows_it(tmp_path, script):
    # Guards: its options that are also ours, and where it lies after a chdir.
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "names.py").write_text("")
    (tmp_path / "pkg" / "train.py").write_text(("from . import names" if "-m" in script else "import names") + SHOW)
    arguments = (*script, "--seed", "3", "--json", "theirs.json", "--help", "--", "-m")
    plain = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, input="typed", check=True
    )
    done, result = run(tmp_path, *arguments, input="typed")
    assert plain.stdout in done.stderr
    assert (done.returncode, result) == (3, None)


def test_wrapped_batches_need_no_loader_and_no_optimizer(tmp_path):
    done, result = diagnosed(tmp_path, SCRIPTS / "get_batch.py")
    assert done.returncode == 0, done.stderr
    assert named(result) == ("input_bound", "fetch")
    efficiency = result["verdict"]["efficiency"]
    assert 0.2 < efficiency["estimate"] < 0.4  # 8 ms of 28
    assert (result["pipeline"]["dataset"], result["pipeline"]["optimizer"]) == ("get_batch", None)


@pytest.mark.parametrize("options", [(), ("--ahead",)], ids=["in the loop", "a thread ahead"])
def test_marks_in_a_generator_are_stages_with_costs_and_gains(tmp_path, options):
    done, result = diagnosed(tmp_path, SCRIPTS / "tokens.py", *options, budgets=("40s", "80s"))
    assert done.returncode == 0, done.stderr
    assert named(result) == ("input_bound", "tokenize")
    stages = {stage["name"]: stage for stage in result["stages"]}
    for name, cost_s in (("read", 0.005), ("tokenize", 0.015), ("pack", 0.010)):
        assert stages[name]["cost_s_per_batch"]["estimate"] == pytest.approx(cost_s, rel=0.35)
    # Without a thread each step is the sum of all; a thread ahead leaves out the step of 8 ms.
    whole_s, left_s = (0.030, 0.015) if options else (0.038, 0.023)
    assert stages["tokenize"]["gain_if_free"]["estimate"] == pytest.approx(whole_s / left_s, rel=0.25)


def test_workers_that_are_spawned_find_what_is_in_main(tmp_path):
    # A spawned worker imports torch: of a shorter budget, its start leaves nothing for a name.
    done, result = diagnosed(tmp_path, SCRIPTS / "reference.py", "--seed", "1", budgets=("20s", "60s"))
    assert done.returncode == 0, done.stderr
    assert named(result) == ("input_bound", "augment")
    assert (result["pipeline"]["num_workers"], result["evidence"]["payload"]["unread"]) == (1, [])
    assert "leaked" not in done.stderr  # of semaphores, which the process leaves without


# --- how scripts end: whatever the time ---------------------------------------------------------------------

EARLY_ENDS = {
    "end": "ended before the measurement",
    "early stopping": "ended before the measurement",
    "exit": "ended before the measurement",
    "os._exit": "ended before the measurement",
    "raise": "the loss is not finite",
    "hang": "asked for no batch for 3.00 s",
    "interrupt": "Interrupted.",
}
# Several at the same time, too, scripts end before this budget does.
LONG = ("--budget", "40s")


def test_what_is_left_of_scripts_that_end_early_and_of_one_that_goes_on_whatever_is_raised(tmp_path):
    runs = {
        how: ((SCRIPTS / "short.py", "150", how), (*LONG, "--step-timeout", "3s" if how == "hang" else "60s"))
        for how in EARLY_ENDS
    }
    stubborn = {"stubborn": ((SCRIPTS / "stubborn.py",), ("--budget", "4s"))}
    ended = side_by_side(tmp_path, runs | stubborn)
    for how, said in EARLY_ENDS.items():
        check_early_end(how, said, tmp_path / how, *ended[how])
    check_that_nothing_ran_after_the_verdict(tmp_path / "stubborn", *ended["stubborn"])


def check_early_end(how, said, folder, done, result):
    """It gives what was measured."""
    assert done.returncode == (130 if how == "interrupt" else 3)
    assert said in done.stderr
    # An end that was ours leaves nothing to the script: it would save what it trained for us.
    assert ("cleaned up" in done.stderr) == (how not in ("os._exit", "hang", "interrupt"))
    assert not (folder / "saved").exists()
    assert result["cost"]["batches"] > 10
    assert "ended-early" in [warning["id"] for warning in result["warnings"]]


def check_that_nothing_ran_after_the_verdict(folder, done, result):
    assert done.returncode == 0, done.stderr
    assert result["verdict"]["efficiency"] is not None
    assert "went on" not in done.stderr
    assert [path.name for path in folder.iterdir()] == ["result.json"]  # neither "saved" nor its scratch


NOT_DIAGNOSED = {
    "no loader": (("nothing.py",), "iterated over no PyTorch DataLoader"),
    "its own end": (
        ("nothing.py", "exit"),
        "--data is missing\nError: The script iterated over no PyTorch DataLoader before it ended with exit status 1. "
        "Seen: no DataLoader; 0 optimizer steps, 0 backward passes. It would end like this without bottleneck, too: "
        "fix that first.",
    ),
    "no optimizer": (("nothing.py", "loader"), "No PyTorch optimizer made a step"),
    "too few steps": (("short.py", "2", "end"), "too few training steps between the batches"),
    "an error": (("short.py", "2", "raise"), "ValueError: the loss is not finite"),
    "a training in a thread": (("short.py", "150", "thread"), "ended before the measurement"),
    "a thread that fills a queue": (("short.py", "150", "queue"), "ended before the measurement"),
    "processes by spawn": (("processes.py", "spawn"), "trains in 2 processes that it starts"),
    "processes by fork": (("processes.py", "fork"), "the processes that it started (train) are not watched"),
    "an interruption in disguise": (("nothing.py", "interrupt"), "Interrupted. The script iterated over no"),
    "no script": (("missing.py",), "There is no script"),
}


def test_what_cannot_be_diagnosed_is_said_in_a_sentence(tmp_path):
    runs = {name: ((SCRIPTS / words[0], *words[1:]), LONG) for name, (words, _) in NOT_DIAGNOSED.items()}
    for name, (done, result) in side_by_side(tmp_path, runs).items():
        check_sentence(name, done, result)


def check_sentence(name, done, result):
    status = {"no script": 2, "processes by spawn": 2, "an interruption in disguise": 130}.get(name, 3)
    assert done.returncode == status, done.stderr
    assert NOT_DIAGNOSED[name][1] in done.stderr
    if "queue" in name:  # its thread may ask once more, and then what there is is told
        assert result is None or "ended-early" in [warning["id"] for warning in result["warnings"]]
    else:
        assert result is None
    assert "This is a bug in bottleneck" not in done.stderr
