"""Measurements lead to the same conclusions, to the last digit, after a change of the analysis."""

import pytest

from tests.locks import results


def test_the_results_differ():
    states = {(read["verdict"]["state"], read["verdict"]["bottleneck"]) for read in map(results.read, results.KEPT)}
    assert len(results.KEPT) >= 25
    assert len(states) >= 12


@pytest.mark.parametrize("path", results.KEPT, ids=lambda path: path.name.partition(".")[0])
def test_another_analysis_concludes_the_same(path):
    kept = results.read(path)
    assert results.conclusions(results.analysed_again(kept)) == results.conclusions(kept)
