"""Properties of every format."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bottleneck.analysis.comparison import compare
from bottleneck.analysis.parts import completed
from bottleneck.errors import UsageError
from bottleneck.reports.answer import headline, on_cpu
from bottleneck.reports.render import FORMATS, render
from bottleneck.results.json import save
from tests.support.results_factory import (
    make_device_bound_result,
    make_empty_result,
    make_interrupted_result,
    make_result,
)

MAKERS = [make_result, make_device_bound_result, make_interrupted_result, make_empty_result]
ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("make", MAKERS)
def test_every_result_can_be_shown_in_every_format(make, format):
    report = render(make(), format)
    in_full = format == "json" or (format == "html" and not on_cpu(make()))
    answer = make().verdict.sentence if in_full else headline(completed(make()))[0]
    assert " ".join(answer.split()[:4]) in report
    assert report.endswith("\n")
    assert not report.endswith("\n\n")
    assert "None" not in report
    assert "nan" not in report.lower().split()


def test_an_unknown_format_is_refused():
    with pytest.raises(UsageError, match=r"no report format 'pdf'\. Use one of text, markdown, html, json"):
        render(make_result(), "pdf")


def test_a_comparison_on_the_cpu_tells_no_share_of_the_device():
    on_a_cpu = [replace(make_result(), environment={"device": "cpu"}) for _ in range(2)]
    compared = compare(*on_a_cpu)
    mixed = compare(make_result(), on_a_cpu[0], force=True)
    for format in ("text", "markdown"):
        assert "the device" not in render(compared, format)
        assert "the device can do" in render(mixed, format)


def test_reports_need_no_torch(tmp_path):
    program = (
        "import sys\n"
        "from bottleneck.reports.render import FORMATS, render\n"
        "from bottleneck.results.json import load\n"
        "result = load(sys.argv[1])\n"
        "for format in FORMATS:\n"
        "    render(result, format)\n"
        "print(sorted({'torch', 'torchvision', 'numpy', 'scipy', 'click'} & set(sys.modules)))\n"
    )
    saved = tmp_path / "result.json"
    save(make_result(), saved)  # as an earlier version did, without `step`
    done = subprocess.run([sys.executable, "-c", program, saved], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
