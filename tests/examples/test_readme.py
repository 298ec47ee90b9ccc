"""The README is true: its commands run, its tables are those of the code."""

import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import click
import pytest

from bottleneck.cli.main import cli, run
from bottleneck.errors import ExitStatus

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
PYTHON_BLOCKS = [text for language, text in BLOCKS if language == "python"]
COMMAND_LINES = [
    shlex.split(line, comments=True)
    for language, text in BLOCKS
    if not language
    for line in text.splitlines()
    if line.startswith(("bottleneck ", "make ", "python ", "pip "))
]
OURS = [words[1:] for words in COMMAND_LINES if words[0] == "bottleneck"]
ON_MYJOB = [words for words in OURS if "myjob" in " ".join(words) or "result.json" in words]

SHORTER = {
    "diagnose": ["--budget", "3s", "--set", "num_workers=1"],
    "tune": ["--budget", "60s", "--try", "tf32"],  # which does not apply, so that little is left to do
}

# What the README's text takes for granted in the user's own module.
PRELUDE = """
import torch
from torch.utils.data import TensorDataset

train_set = TensorDataset(torch.zeros(4096, 8), torch.zeros(4096, dtype=torch.int64))
model = torch.nn.Linear(8, 2)
loss_fn = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(train_set, batch_size=64, num_workers=1)
"""


def table_under(heading: str) -> list[str]:
    """The code in the first column of the table under a heading, without the head."""
    section = README.split(f"{heading}\n", 1)[1].split("\n#", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [row.split("|")[1].strip() for row in rows]


def test_the_two_commands_of_a_checkout_are_there():
    to_try = README.split("\n## ", 2)[1]
    assert "make demo" in to_try
    assert "make test" in to_try


@pytest.mark.parametrize("words", OURS, ids=" ".join)
def test_every_command_is_understood(words):
    command = cli.get_command(click.Context(cli), words[0])
    assert command is not None
    command.make_context(words[0], list(words[1:]))


def test_every_make_target_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    named = {word for words in COMMAND_LINES if words[0] == "make" for word in words[1:]}
    assert named
    assert named <= targets


def test_every_example_exists():
    named = set(re.findall(r"examples/\w+\.py", README))
    assert named == {f"examples/{path.name}" for path in (ROOT / "examples").glob("*.py")}


def test_the_exit_statuses_are_those_of_the_code():
    assert [int(status) for status in table_under("## Exit status")] == sorted(ExitStatus)


def test_it_is_short():
    assert len(README.split()) < 1200


@pytest.mark.integration
def test_the_users_module_and_its_commands(folder, capfd):
    (folder / "myjob.py").write_text(f"{PRELUDE}\n{PYTHON_BLOCKS[0]}", encoding="utf-8")
    assert len(ON_MYJOB) >= 3
    for words in ON_MYJOB:
        status, (out, err) = run([*words, *SHORTER.get(words[0], [])]), capfd.readouterr()
        assert status == ExitStatus.OK, (words, err)
        assert out.strip()
    assert (folder / "report.md").is_file()


@pytest.mark.integration
def test_the_python_of_the_readme(tmp_path):
    body = PYTHON_BLOCKS[1].replace("bottleneck.diagnose(", "bottleneck.diagnose(budget='3s', pipeline=", 1)
    script = f"{PRELUDE}\nif __name__ == '__main__':\n{textwrap.indent(body, '    ')}"
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "one step" in done.stdout
