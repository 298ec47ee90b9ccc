"""Money that is lost is told in one sentence, and only where a price was given and a loss is known."""

from dataclasses import replace

import pytest

from bottleneck.analysis.settings import with_price
from bottleneck.reports.answer import lost_money
from bottleneck.results.records import Interval
from tests.support.results_factory import make_interrupted_result, make_result

EFFICIENCY = Interval(0.381, 0.362, 0.400)


def priced(price, *, efficiency=EFFICIENCY):
    return with_price(make_result(verdict=replace(make_result().verdict, efficiency=efficiency)), price)


@pytest.mark.parametrize(
    ("price", "told"),
    [
        (2.5, "Of the 2.5 that a GPU hour costs, 1.55 (1.50–1.59) is lost"),
        (0.35, "Of the 0.35 that a GPU hour costs, 0.217 (0.210–0.223) is lost"),
        (1200, "Of the 1200 that a GPU hour costs, 742.80 (720.00–765.60) is lost"),
    ],
)
def test_the_loss_has_digits_as_its_price_has_and_its_interval(price, told):
    assert lost_money(priced(price)).startswith(told)


def test_a_loss_that_may_be_none_has_no_dash_that_reads_as_a_minus():
    assert "0.03 (−0.03 to 0.08) is lost" in lost_money(priced(2.5, efficiency=Interval(0.99, 0.97, 1.01)))


def test_without_a_price_nothing_is_told():
    assert lost_money(make_result()) == ""


def test_without_an_efficiency_no_loss_is_claimed():
    result = with_price(make_interrupted_result(), 2.5)
    assert result.evidence.lost_per_gpu_hour is None
    assert "not known" in lost_money(result)


@pytest.mark.parametrize("price", [-1, 0, 1e308, 5e-324])
def test_a_price_from_a_strange_file_crashes_nothing(price):
    told = lost_money(
        make_result(
            evidence={"gpu_hour_price": price, "lost_per_gpu_hour": {"estimate": 0.6 * price, "low": 0, "high": price}}
        )
    )
    assert told == "" or "0.000000000" in told


def test_of_an_undecided_job_no_loss_is_told():
    # Guards: 'of 2.5, 0.14 (−18.16 to 2.23) is lost' after a few rounds on a busy machine.
    result = make_result()
    result = replace(result, verdict=replace(result.verdict, state="undecided", bottleneck=None))
    assert "is undecided" in lost_money(with_price(result, 2.5))
