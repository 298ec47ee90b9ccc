"""A result of 5 MB: read and shown in every format in about a second, without torch."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks.large_results import SIZE_BYTES, enlarge
from bottleneck.reports.render import FORMATS
from bottleneck.results.json import save
from tests.support.results_factory import make_result

FAR_TOO_LONG_S = 20
"""A bound that only another order of growth breaks; what it really takes is measured by `make bench`."""

COMPARE = "compare small.json large.json --format json"
SHOW = """
import json, sys, time
from bottleneck.cli.main import run
begin = time.perf_counter()
status = run(sys.argv[1:])
heavy = sorted({"torch", "torchvision", "PIL"} & set(sys.modules))
print(json.dumps([status, heavy, time.perf_counter() - begin]), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("large")
    save(make_result(), made / "small.json")
    save(enlarge(make_result()), made / "large.json")
    assert SIZE_BYTES <= (made / "large.json").stat().st_size < 1.1 * SIZE_BYTES
    return made


@pytest.mark.parametrize("command", [*(f"report large.json --format {form}" for form in FORMATS), COMPARE])
def test_a_large_result_is_shown_without_torch_and_before_patience_ends(folder, command):
    arguments = [sys.executable, "-c", SHOW, *command.split()]
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=True, timeout=120)
    status, heavy, took_s = json.loads(done.stderr)
    assert (status, heavy) == (0, [])
    assert "augment" in done.stdout
    assert took_s < FAR_TOO_LONG_S
