"""Reports of jobs of many ranks: first the job, then the ranks that matter, however many there are."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from bottleneck.analysis.parts import completed
from bottleneck.reports.markdown import LIMIT
from bottleneck.reports.render import for_terminal, render
from tests.support.rank_results import make_ranks_result, make_sync_bound_result
from tests.support.results_factory import make_result

SENTENCE = (
    "Rank 5 on node-0 (cuda:5) slows down all 16 ranks with its augment. Without that: 2.3x (2.2–2.4) the throughput."
)


@pytest.mark.parametrize("format", ["text", "markdown", "html"])
def test_the_rank_that_holds_the_others_is_named_in_every_format(format):
    assert SENTENCE in " ".join(render(make_ranks_result(), format).split())


@pytest.mark.parametrize(
    ("slow", "told"), [(5, "Bottleneck: augment. "), (0, "Bottleneck: augment, 20.7 ms of the 24.3 ms")]
)
def test_what_the_first_ranks_loader_takes_is_not_told_of_another_one(slow, told):
    on_cpu = {**make_result().environment, "device": "cpu"}
    report = render(replace(make_ranks_result(slow=slow), environment=on_cpu), "text")
    assert told in " ".join(report.split())


def test_a_terminal_of_80_columns_has_a_line_for_each_of_three_ranks():
    lines = [line.strip() for line in render(make_ranks_result(), "text").splitlines()]
    assert [line.split()[:4] for line in lines if line.startswith(("slowest", "median", "fastest"))] == [
        ["slowest", "5", "node-0", "cuda:5"],
        ["median", "2", "node-0", "cuda:2"],
        ["fastest", "14", "node-1", "cuda:6"],
    ]
    assert "16 ranks on 2 hosts, NVIDIA H100, batch 16, 2 workers" in lines
    assert any(line.startswith("648 samples/s a rank now") for line in lines)


def test_a_job_that_shares_gradients_half_of_its_time_says_so():
    result = make_sync_bound_result()
    text = " ".join(render(result, "text").split())
    assert text.startswith("SYNC-BOUND")
    assert "Bottleneck: sync. Sharing gradients takes 24.6 ms of each step. Without it: 1.94x (1.88–2.01)" in text
    assert render(result, "markdown").startswith("### 🔴 ImageFolder waits for its gradients")


def test_what_sharing_gradients_takes_is_apart_from_the_rest_of_the_train_step():
    result = make_sync_bound_result()
    compute, sync, *_ = completed(result).step
    assert (compute.name, sync.name) == ("compute", "sync")
    assert sync.s_per_batch == result.evidence.ranks.sync.cost_s_per_batch
    assert compute.s_per_batch + sync.s_per_batch == pytest.approx(sync.end_s)


# --- all of them ------------------------------------------------------------------------------------------


def rows_of(page):
    part = page.partition('id="all-ranks"')[2].partition("</table>")[0]
    return re.findall(r"<tr>(<td.*?)</tr>", part)


def test_a_page_has_a_row_for_each_rank_the_slowest_first():
    rows = rows_of(render(make_ranks_result(), "html"))
    assert len(rows) == 16
    assert rows[0].startswith('<td class="number">5</td>')
    widths = [float(re.search(r"width: ([\d.]+)%", row)[1]) for row in rows]
    assert widths[0] == 100.0
    assert max(widths[1:]) < 80


# --- a thousand ranks -------------------------------------------------------------------------------------


def test_reports_of_a_thousand_ranks_are_as_long_as_those_of_few():
    few, many = make_ranks_result(64), make_ranks_result(1024)
    assert len(render(many, "markdown")) < LIMIT
    assert len(for_terminal(many, verbose=True).plain().splitlines()) == len(
        for_terminal(few, verbose=True).plain().splitlines()
    )
    assert len(render(many, "html")) < 1.05 * len(render(few, "html"))
