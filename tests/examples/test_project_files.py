"""What the project's files say of each other: Python and torch, licence, hooks, forms."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
CONFIGURATION = sorted(
    path for path in (*(ROOT / ".github").rglob("*.yml"), ROOT / ".pre-commit-config.yaml") if path.is_file()
)


def read(name):
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def matrix():
    return read(".github/workflows/tests.yml")["jobs"]["unit"]["strategy"]["matrix"]


@pytest.mark.parametrize("path", CONFIGURATION, ids=lambda path: path.name)
def test_configuration_is_a_mapping(path):
    assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict)


def test_every_promised_python_is_tested():
    promised = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PYPROJECT)
    assert matrix()["python"] == promised
    assert f'requires-python = ">={promised[0]}"' in PYPROJECT


def test_the_oldest_promised_torch_is_tested_on_the_oldest_python():
    [oldest] = re.findall(r'"torch>=([\d.]+)"', PYPROJECT)
    tried = {(row["python"], row["torch"].split()[0]) for row in matrix()["include"]}
    assert (matrix()["python"][0], f"torch=={oldest}.*") in tried


def test_a_report_of_a_problem_has_to_say_what_doctor_says():
    form = {field["id"]: field for field in read(".github/ISSUE_TEMPLATE/problem.yml")["body"]}
    assert "bottleneck doctor" in form["doctor"]["attributes"]["label"]
    assert form["doctor"]["validations"]["required"]
    assert "result.json" in form["result"]["attributes"]["label"]
