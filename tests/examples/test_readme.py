"""The README is true: its commands run, its tables are those of the code."""

import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from bottleneck.cli.main import run
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
