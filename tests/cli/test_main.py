import json
import subprocess
import sys

import click
import pytest

from bottleneck.cli.main import COMMANDS, cli, exit_status_of, run
from bottleneck.cli.options import EXAMPLES, GROUP_OF
from bottleneck.errors import BottleneckError, ExitStatus, MeasurementError, PipelineError


def test_help_needs_no_heavy_library():
    asked = [["--help"], *([name, "--help"] for name in COMMANDS), ["--version"]]
    code = (
        "import json, sys\n"
        "from bottleneck.cli.main import run\n"
        "for arguments in json.loads(sys.argv[1]):\n"
        "    status = int(run(arguments))\n"
        "    heavy = {'msgspec'} if arguments == ['--help'] else set()\n"
        "    heavy |= set('torch numpy scipy torchvision PIL jinja2 rich psutil'.split()) \n"
        "    heavy &= set(sys.modules)\n"
        "    print(json.dumps([status, sorted(heavy)]))\n"
        "    print('-' * 9)\n"
    )
    command = [sys.executable, "-c", code, json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    for arguments, shown in zip(asked, done.stdout.split("---------\n")[:-1], strict=True):
        assert json.loads(shown.splitlines()[-1]) == [0, []], arguments
        assert shown.startswith(("Usage: bottleneck", "bottleneck, version"))


@pytest.mark.parametrize("name", ["diagnose", "report"])
def test_a_working_directory_that_was_removed_is_told(name, monkeypatch, tmp_path, capsys):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert run([name, "x:y", "z"]) == ExitStatus.USAGE
    assert capsys.readouterr().err == (
        "Error: The working directory cannot be used: no such file or directory. Change to a folder that exists.\n"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_groups_with_every_option_in_one_and_examples_that_are_right(name, capsys):
    run([name, "--help"])
    text = capsys.readouterr().out
    assert "Other:\n  --traceback" in text
    options = [p for p in cli.get_command(click.Context(cli), name).params if isinstance(p, click.Option)]
    assert {max(option.opts, key=len) for option in options} <= set(GROUP_OF)
    assert f"Examples:\n  bottleneck {name}" in text
    known = {text for option in options for text in option.opts}
    for example in EXAMPLES[name]:
        own = example.partition(" train.py ")[0].partition(" -m ")[0]  # what follows a script is the script's
        assert {word for word in own.split() if word.startswith("-")} <= known


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "Error: No such command 'nonsense'. Try 'bottleneck --help'."),
        (["diagnos", "x"], "Error: No such command 'diagnos'. Did you mean 'bottleneck diagnose'? Try"),
        (["report", "r.json", "--card", "c.svg"], "Error: --card is gone: the page that --html writes begins with"),
        (["compare", "a.json"], "Only one result was given. Write: "),
        (["train.py:build"], "Did you mean 'bottleneck diagnose train.py:build'?"),
        (["train.py"], "Did you mean 'bottleneck run train.py'?"),
        (["report"], "Error: Missing argument 'RESULT.json'. Try 'bottleneck report --help'."),
        (["report", "r.json", "--fromat", "html"], "Try 'bottleneck report --help'."),
        (["report", "nowhere.json"], "Error: There is no file nowhere.json."),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(arguments, words, capsys):
    assert run(arguments) == ExitStatus.USAGE
    output = capsys.readouterr()
    assert words in output.err
    assert output.err.count("\n") == 1
    assert output.out == ""


def made_of(cause, error):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (PipelineError("a\nb.", "Write c."), 2, "Error: a b. Write c.\n"),
        (MeasurementError("The job failed."), 3, "Error: The job failed.\n"),
        (BottleneckError("Odd."), 4, "Error: Odd.\n"),
        (KeyboardInterrupt(), 130, "Interrupted.\n"),
        (KeyboardInterrupt("No loop."), 130, "Interrupted. No loop.\n"),
        (made_of(KeyboardInterrupt(), RuntimeError("in __set_name__")), 130, "Interrupted.\n"),
        (made_of(KeyboardInterrupt(), MeasurementError("The job failed.")), 3, "Error: The job failed.\n"),
        (SystemExit("bye"), 3, "Error: The job's own code ended the process (SystemExit: bye). "),
        (
            ZeroDivisionError("division\nby zero"),
            4,
            "Error: ZeroDivisionError: division by zero. This is a bug in bottleneck",
        ),
        (KeyError(), 4, "Error: KeyError. This is a bug in bottleneck"),
        (click.exceptions.Exit(0), 0, ""),
    ],
)
def test_every_error_has_a_message_and_a_status(error, status, message, capsys):
    assert exit_status_of(error) == status
    shown = capsys.readouterr().err
    assert shown.startswith(message)
    assert shown.count("\n") == (1 if message else 0)
    assert "Traceback" not in shown


def test_the_users_own_traceback_is_shown_once(capsys):
    details = "Traceback (most recent call last):\nValueError: bad sample\n"
    error = MeasurementError("Sample 3 failed.", details=details)
    exit_status_of(error)
    shown = capsys.readouterr().err
    assert shown == f"{details}Error: Sample 3 failed.\n"
    error.__cause__ = RuntimeError(details)
    exit_status_of(error, show_traceback=True)
    assert capsys.readouterr().err.count("ValueError: bad sample") == 1


def test_a_reader_that_closes_the_pipe_is_no_error(tmp_path):
    from bottleneck.results.json import save
    from tests.support.results_factory import make_result

    path = tmp_path / "result.json"
    save(make_result(), path)
    code = "from bottleneck.cli.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, "report", str(path), "--format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait(60) == 0
    assert errors == b""


RANK = """
import atexit, sys
import torch.distributed as distributed
distributed.is_initialized, distributed.get_world_size = lambda: True, lambda: int(sys.argv.pop())
atexit.register(print, "the interpreter has ended")
from bottleneck.cli.main import main
main()
"""


@pytest.mark.parametrize("world", [1, 2])
def test_a_rank_leaves_before_the_interpreter_ends(world):
    # Guards: there Gloo's threads abort the process now and then, and its launcher takes a diagnosis for a failure.
    done = subprocess.run(
        [sys.executable, "-c", RANK, "--version", str(world)], capture_output=True, text=True, check=True
    )
    assert "bottleneck" in done.stdout
    assert ("has ended" in done.stdout) == (world == 1)
