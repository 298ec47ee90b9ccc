"""Results of an observation: times, rows of transforms, and the reason why rows do not add up."""

from collections import Counter
from pathlib import Path

import pytest

from bottleneck.loader import modes
from bottleneck.loader.observing.garbage import Collections
from bottleneck.loader.observing.lines import NOWHERE
from bottleneck.loader.observing.meter import Spent, TransformSpent
from bottleneck.loader.observing.observation import Line, Observation
from bottleneck.measure.evidence.stages import observe, summarise, with_times
from tests.measure.ladders import Workers, make_ladder
from tests.support.as_json import in_json
from tests.support.clock import FakeClock

summarise = in_json(summarise)


def seen(stage_times, transforms=(), *, workers=1, batches=10, samples=40, core_wait_s=0.0):
    return Observation(
        workers, batches, samples, core_wait_s,
        stages={name: Spent(*times) for name, times in stage_times.items()},
        transforms={
            (stage, f"transform.transforms[{order}]"): TransformSpent(
                wall_s, cpu_s, name=name, order=order, calls=calls, outputs=Counter(outputs)
            )
            for order, (stage, name, calls, wall_s, cpu_s, outputs) in enumerate(transforms)
        },
    )  # fmt: skip


def ladder(*within, **more):
    return make_ladder(within_sample=within, **more)


def times(ladder):
    return {s.name: (s.wall_s_per_batch, s.cpu_s_per_batch) for s in ladder.spans}


CUT = {"load": (8.0, 2.0), "augment": (4.0, 3.0), "collate": (1.0, 1.0)}


def test_stages_get_the_time_of_a_batch_of_all_workers_together():
    # 20 batches by 2 workers: each took half of them, and both were at work at once.
    found = times(with_times(ladder("augment", "load"), seen(CUT, workers=2, batches=20)))
    assert found == {
        "compute": (None, None), "handoff": (None, None),
        "collate": (0.025, 0.025), "augment": (0.1, 0.075), "load": (0.2, 0.05),
    }  # fmt: skip


def test_what_is_not_measured_apart_is_part_of_fetch():
    assert times(with_times(ladder("fetch"), seen({"load": (8.0, 2.0), "collate": (1.0, 1.0)})))["fetch"] == (0.8, 0.2)
    without_samples = times(with_times(ladder("augment", "load", has_samples=False), seen(CUT)))
    assert without_samples["collate+fetch"] == (1.3, 0.6)
    assert "load" not in without_samples


def test_a_row_tells_calls_times_share_and_output():
    found = seen(
        CUT,
        [
            ("augment", "Crop", 20, 1.0, 0.9, {"3x4x4 uint8": 20}),
            ("augment", "Pad", 40, 2.8, 2.0, {"500x375 RGB": 30, "375x500 RGB": 10}),
        ],
    )
    evidence = summarise(found, ladder("augment", "load").spans)
    assert evidence["transforms"] == [
        {
            "stage": "augment", "path": "transform.transforms[0]", "name": "Crop", "calls_per_sample": 0.5,
            "wall_s_per_call": 0.05, "cpu_s_per_call": 0.045, "share": 0.25, "output": "3x4x4 uint8",
        },
        {
            "stage": "augment", "path": "transform.transforms[1]", "name": "Pad", "calls_per_sample": 1.0,
            "wall_s_per_call": pytest.approx(0.07), "cpu_s_per_call": 0.05, "share": pytest.approx(0.7),
            "output": "500x375 RGB, varies",
        },
    ]  # fmt: skip
    assert "transforms_note" not in evidence  # 95 % of the stage


@pytest.mark.parametrize(
    ("stage", "said"), [("augment", "the rest is the compositions themselves"), ("load", "not a transform")]
)
def test_rows_that_do_not_add_up_say_why(stage, said):
    note = summarise(seen(CUT, [(stage, "Crop", 10, 1.0, 1.0, {})]), ladder("augment", "load").spans)["transforms_note"]
    assert said in note
    assert {"augment": "25 % of augment", "load": "12 % of load"}[stage] in note


def test_what_a_collection_takes_is_told_without_that_of_the_first():
    found = seen(CUT)
    found.collections = Collections(1, 0.9, 2_000_000)
    found.collections.add(Collections(1, 0.5, 3_000_000))
    told = summarise(found, ())["collections"]
    assert (told["seconds_each"], told["objects"]) == (0.5, 3_000_000)


def test_waiting_for_a_core_is_told_for_each_second_of_work():
    assert summarise(seen(CUT, core_wait_s=3.0), ())["core_wait_per_cpu_s"] == 0.5
    assert summarise(seen(CUT, core_wait_s=None), ()) == {}
    assert summarise(Observation(), ()) == {}


# --- the pass ----------------------------------------------------------------------------------------------


class Observing(Workers):
    def observations(self):
        shown = min(self.taken, self.busy)
        return [seen(CUT, batches=self.taken // shown) for _ in range(shown)]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_every_worker_makes_a_batch_however_short_the_time_is(workers):
    loader = Observing(workers)
    total = observe(loader, 0.0, FakeClock(per_reading_s=1.0))
    assert loader.taken == total.workers == max(1, workers)
    assert loader.modes == [modes.OBSERVE, None]


def test_workers_without_a_share_of_the_data_are_not_waited_for():
    loader = Observing(4, idle=3)
    assert observe(loader, 0.0, FakeClock(per_reading_s=1.0)).workers == 1
    assert loader.taken == 17


# --- lines -------------------------------------------------------------------------------------------------


def test_lines_are_shares_of_their_stage_and_small_ones_are_left_out():
    line = Line(__file__, 1, "load", "copy.deepcopy", False)
    found = seen(CUT)
    found.lines = {
        ("load", line): Spent(3.0, 3.0),
        ("load", line._replace(calls="copy.copy")): Spent(1.0, 0.0),
        ("load", line._replace(line=2, library=True)): Spent(3.6, 0.9),
        ("load", line._replace(line=3)): Spent(0.4, 0.4),
        ("augment", NOWHERE): Spent(1.0, 1.0),
    }
    found.add(found)
    kept = summarise(found, ladder("augment", "load").spans)["lines"]
    common = {"stage": "load", "function": "load", "calls": "copy.deepcopy"}
    path = str(Path("tests/measure/test_observe.py"))
    code = '"""Results of an observation: times, rows of transforms, and the reason why rows do not add up."""'
    assert kept == [
        {**common, "path": path, "line": 1, "code": code[:100], "share": 0.5, "waiting_share": 0.25, "library": False},
        {**common, "path": path, "line": 2, "code": None, "share": 0.45, "waiting_share": 0.75, "library": True},
        {**common, "path": path, "line": 3, "code": "from collections import Counter", "share": 0.05,
         "waiting_share": 0.0, "library": False},
    ]  # fmt: skip


def test_lines_of_stages_that_are_not_measured_apart_are_those_of_the_span():
    found = seen({"load": (8.0, 2.0), "collate": (1.0, 1.0)})
    found.lines = {("load", Line(__file__, 1, "load", None, False)): Spent(1.0, 1.0)}
    assert [line["stage"] for line in summarise(found, ladder("fetch").spans)["lines"]] == ["fetch"]
