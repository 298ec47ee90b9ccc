"""Each change that comes with `bottleneck`: kept where it helps, dropped where it does harm, told where it does not
run, and described in the reference."""

import ast
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torchvision import transforms

from bottleneck.job.pipeline import FIELD_NAMES, Pipeline
from bottleneck.reports.render import render
from bottleneck.tuning.change import Setting
from bottleneck.tuning.changes import BUILT_IN
from bottleneck.tuning.changes.payload import LowerPrecision, OneHotRows, ShapesOnly
from bottleneck.tuning.record import conclude
from bottleneck.tuning.session import TuningSession
from tests.support.results_factory import make_result
from tests.tuning.old_torch import NEEDS_IN_ORDER, where_there
from tests.tuning.test_changes import Pictures
from tests.tuning.test_tuning_session import World

ROOT = Path(__file__).parent.parent.parent
BY_NAME = {change.name: change for change in BUILT_IN}
VALUES = {
    "num_workers": 2, "prefetch_factor": 4, "start_method": "fork", "worker_threads": 2, "threads": 1, "batch_size": 16,
    "compile": "default", "smaller_floats": LowerPrecision(("[0]",), "float64", "float32"),
    "one_hot": OneHotRows(("[1]",), 2, 4, "float32"), "leave_out": ShapesOnly(("[1]",)),
}  # fmt: skip
"""A value of each change that has values."""


def job():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4))
    tail = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.5,) * 3, (0.5,) * 3)])
    return Pipeline(
        dataset=Pictures(tail), model=model, loss_fn=nn.CrossEntropyLoss(), batch_size=4, num_workers=1, device="cpu",
        optimizer=torch.optim.Adam(model.parameters()), multiprocessing_context="spawn",
    )  # fmt: skip


def is_changed(pipeline, given):
    fields = any(getattr(pipeline, name) is not getattr(given, name) for name in FIELD_NAMES)
    return fields or pipeline.loader_args != given.loader_args or pipeline._step_options != given._step_options


class OneThingMatters(World):
    """Any change to the job makes it so many times as slow."""

    def __init__(self, given, factor):
        super().__init__()
        self.given, self.factor = given, factor

    def pace_s(self, pipeline):
        return 0.004 * (self.factor if is_changed(pipeline, self.given) else 1.0)


def anywhere(change):
    """The change with one of its values, on whatever job."""
    value = VALUES.get(change.name)
    assert (value is None) == (change.next_value is None)
    once = None if value is None else lambda _, judged: None if value in judged else value
    return replace(change, why_not=lambda _: None, next_value=once)


def tuned(world, changes):
    session = TuningSession(
        world.given, [anywhere(change) for change in changes], 600.0, diagnose=lambda *_: make_result(),
        tell=lambda _: None, left_as_found=nullcontext, opener=world.opener, clock=world.clock, others=world.others,
    )  # fmt: skip
    session.run()
    assert world.open == []
    return session


@pytest.fixture(autouse=True)
def no_real_steps(monkeypatch):
    monkeypatch.setattr("bottleneck.tuning.session.compare_losses", lambda *_: None)
    monkeypatch.setattr("bottleneck.tuning.lane.usable_cores", lambda: 8.0)


@pytest.mark.parametrize("name", where_there(name for name, change in BY_NAME.items() if not change.by_hand))
def test_each_change_is_kept_where_it_helps_and_dropped_where_it_does_harm(name):
    for factor, outcome in ((0.7, "kept"), (1.2, "dropped")):
        session = tuned(OneThingMatters(job(), factor), [BY_NAME[name]])
        (trial,) = session.found.trials
        assert trial.outcome == outcome
        assert (trial.setting, trial.changes) == (Setting(BY_NAME[name], VALUES.get(name)).label, (name,))
        assert [setting.change.name for setting in session.best] == ([name] if outcome == "kept" else [])


@pytest.mark.parametrize("name", [name for name, change in BY_NAME.items() if change.by_hand])
def test_what_has_to_be_tried_by_hand_is_listed_with_its_line(name):
    change, world = BY_NAME[name], OneThingMatters(job(), 0.7)
    session = tuned(world, [change])
    (trial,) = session.found.trials
    assert (trial.outcome, trial.pairs, trial.reason) == ("not_tried", (), change.by_hand)
    assert change.line in trial.reason
    report = render(conclude(session.found, session.best, {}, {}), "text")
    assert f"{name} was not tried: {change.by_hand}." in " ".join(report.split())
    assert "no time left" not in report


@pytest.mark.parametrize("name", BY_NAME)
def test_the_lines_to_paste_are_python(name):
    lines = Setting(BY_NAME[name], VALUES.get(name)).line("Adam")
    ast.parse(lines)
    assert not re.search(r"\{\w+\}", lines)


@NEEDS_IN_ORDER
def test_what_does_not_run_is_a_row_of_each_change():
    world = OneThingMatters(job(), 0.7)
    world.refused = lambda pipeline: is_changed(pipeline, world.given)
    tried = [change for change in BUILT_IN if not change.by_hand]
    session = tuned(world, tried)
    assert {(trial.outcome, trial.reason) for trial in session.found.trials} == {
        ("failed", "The train step raised: CUDA out of memory.")
    }
    assert len(session.found.trials) == len(tried)


class CompilesOnce(OneThingMatters):
    """What is compiled stays so in a process."""

    def opener(self, pipeline, budget_s, **asked):
        lane = super().opener(pipeline, budget_s, **asked)
        first = is_changed(pipeline, self.given) and not getattr(self, "compiled", False)
        lane.setup_s = 30.0 if first else 0.5
        self.compiled = getattr(self, "compiled", False) or first
        return lane


def test_what_was_compiled_once_is_still_told_of_the_ladder():
    session = tuned(CompilesOnce(job(), 0.7), [BY_NAME["compile"]])
    assert [rung.setup_s for rung in session.found.ladder] == [0.5, 30.0]


def test_the_reference_has_a_row_for_each_change():
    page = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", page.partition("## What `tune` tries")[2].partition("\n## ")[0], re.M)
    told = {name: [cell.strip() for cell in rest.split(" | ")] for name, rest in rows}
    assert list(told) == list(BY_NAME)
    for name, (_, _, alters, source) in told.items():
        assert alters == BY_NAME[name].alters
        assert re.search(r"\((.*)\)", source).group(1) == BY_NAME[name].source
        assert BY_NAME[name].line
    safe = re.search(r"`--safe` \|[^|]*\| (.*) \|", page).group(1)
    assert set(re.findall(r"`(\w+)`", safe)) == {c.name for c in BUILT_IN if c.alters == "numbers"}
