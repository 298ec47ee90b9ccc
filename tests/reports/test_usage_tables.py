"""What is used up is in every report, with a row for each experiment; nothing strange in the evidence breaks one."""

import pytest

from tests.support.in_full import render_in_full
from tests.support.results_factory import make_result

USAGE = {
    "cores": {"usable": 8, "quota": None, "allowed": 8},
    "experiments": [
        {
            "name": "raw", "mode": "coupled", "seconds": 3.0, "cores_busy": 7.8, "cores_main": 0.25,
            "cores_workers": 7.4, "cores_other": 0.15, "disk_read_bytes_per_s": 30 * 2**20,
            "disk_write_bytes_per_s": 0.0, "network_bytes_per_s": 1536.0, "gpu": {"busy_share": 0.38},
        },
        {"name": "augment", "mode": "without", "cores_busy": 2.5, "gpu": None},
    ],
    "workers": {"private_bytes": 3 * 2**30, "cache_bytes": 2**29, "private_growth_bytes_per_s": 2**20},
    "shared_memory": {"size_bytes": 2**30, "peak_used_bytes": 2**28},
    "missing": ["Bytes over the network: /proc/net/dev cannot be read."],
}  # fmt: skip


def report(format_, usage=USAGE):
    return render_in_full(make_result(evidence={"utilisation": usage}), format_)


def test_the_terminal_says_what_is_used_up_in_two_lines_of_80_columns():
    text = report("text")
    start = text.index("Used up while the job runs")
    lines = text[start:].split("\n\n")[0].splitlines()
    assert lines[:2] == [
        "Used up while the job runs: the cores (7.80 of 8 cores busy: workers 7.40, main",
        "process 0.25, others 0.15).",
    ]
    assert lines[2:] == ["Not seen: Bytes over the network: /proc/net/dev cannot be read."]


def test_the_page_has_a_row_for_each_experiment_and_what_is_missing():
    page = report("html")
    assert '<td>raw</td><td>coupled</td><td class="number">7.80</td>' in page
    assert "Used up while the job runs" in page
    assert "/proc/net/dev cannot be read" in page


@pytest.mark.parametrize("format_", ["text", "markdown", "html"])
def test_without_this_evidence_nothing_is_said(format_):
    for usage in (None, {}, {"experiments": []}):
        text = report(format_, usage)
        assert "used up while" not in text.lower()
        assert "cores busy" not in text
