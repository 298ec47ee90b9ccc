"""The experiments, their measurements, and the reasons why others are missing."""

from types import SimpleNamespace

from bottleneck.loader import modes
from bottleneck.loader.modes import (
    ALL,
    AUGMENT,
    COLLATE,
    EXPERIMENTS,
    HANDOFF,
    LOAD,
    PAY_SERVING,
    SKIP_COLLATE_REST,
    SKIP_OTHER,
    skip_bit,
)
from bottleneck.loader.recording.plan import MarkPlan, Plan
from bottleneck.measure.ladder import Arm
from bottleneck.measure.ledger import Ledger, describe_arm
from bottleneck.measure.prepare import make_ladder as ladder_of_job
from bottleneck.results.records import Block
from bottleneck.script.iterators import stream_loader
from tests.measure.ladders import make_ladder


def ladder_of(**options):
    given = {"copies": True, "hands_over": True, "within_sample": ("augment", "load"), **options}
    return make_ladder(**given)


def reasons(ladder):
    return {rung.name: rung.reason for rung in ladder.rungs if rung.reason is not None}


def spans(ladder):
    return [(span.name, span.inner, span.outer) for span in ladder.spans]


def test_the_whole_ladder():
    ladder = ladder_of()
    assert tuple(rung.name for rung in ladder.rungs) == EXPERIMENTS
    assert reasons(ladder).keys() == {"after_augment"}
    assert "same as before_collate" in reasons(ladder)["after_augment"]
    assert spans(ladder) == [
        ("compute", None, "device"),
        ("copy", "device", "host"),
        ("handoff", "host", "after_collate"),
        ("collate", "after_collate", "before_collate"),
        ("augment", "before_collate", "before_augment"),
        ("load", "before_augment", "raw"),
    ]


def test_each_rung_adds_one_stage_to_what_runs_for_real():
    rungs = {rung.name: rung for rung in ladder_of().rungs}
    assert rungs["device"].coupled == Arm(None, "device")
    assert rungs["host"].coupled == Arm(None, "host")
    modes = [rungs[name].coupled.mode for name in EXPERIMENTS[2:] if name != "after_augment"]
    assert modes == [HANDOFF, HANDOFF | COLLATE, HANDOFF | COLLATE | AUGMENT, ALL]


def test_without_each_stage_everything_else_is_real():
    without = dict(ladder_of().without)
    assert without == {
        "copy": Arm(ALL, "device"),
        "handoff": Arm(ALL & ~HANDOFF, "host"),
        "collate": Arm(ALL & ~COLLATE, "loader"),
        "augment": Arm(ALL & ~AUGMENT, "loader"),
        "load": Arm(ALL & ~LOAD, "loader"),
    }


def test_a_cost_is_what_the_workers_alone_gain_without_one_stage():
    # Guards: neighbouring rungs compare a hot loop with a cold one, and book that on the first stage made real.
    ladder = ladder_of()
    everything = Arm(ALL & ~HANDOFF, "loader", coupled=False)
    serving = Arm(ALL & ~HANDOFF | PAY_SERVING, "loader", coupled=False)
    bits = {"collate": COLLATE, "augment": AUGMENT, "load": LOAD}
    left_out = {stage: Arm(ALL & ~HANDOFF & ~bit, "loader", coupled=False) for stage, bit in bits.items()}
    assert {rung.name: rung.workers for rung in ladder.rungs if rung.workers is not None} == {"raw": everything}
    assert dict(ladder.without_alone) == left_out
    assert ladder.serving == serving
    assert set(ladder.cost_arms()) == {everything, serving, *left_out.values()} <= set(ladder.deciding_arms())


def test_without_workers_there_is_no_handoff():
    ladder = ladder_of(hands_over=False)
    assert "num_workers is 0" in reasons(ladder)["after_collate"]
    assert ("collate", "host", "before_collate") in spans(ladder)
    assert "handoff" not in dict(ladder.without)
    assert all(rung.workers is None for rung in ladder.rungs)


def test_fetch_where_nothing_can_be_cut():
    ladder = ladder_of(within_sample=("fetch",), reason="it is written in one piece")
    for name in ("after_augment", "before_augment"):
        assert "it is written in one piece" in reasons(ladder)[name]
    assert spans(ladder)[-1] == ("fetch", "before_collate", "raw")
    assert dict(ladder.without)["fetch"] == Arm(HANDOFF | COLLATE, "loader")


def test_batches_that_come_as_they_are_have_no_stage_for_their_collation():
    """Guards: a row `collate` for a generator of `bottleneck.watch`."""
    ladder = make_ladder(copies=True, hands_over=False, has_samples=False, collates=False, within_sample=("fetch",))
    assert [span.name for span in ladder.spans] == ["compute", "copy", "fetch"]
    reasons = {rung.name: rung.reason for rung in ladder.rungs if rung.reason}
    assert "nothing is collated" in reasons["before_collate"]
    assert "memory" not in " ".join(reasons.values())
    assert dict(ladder.without)["fetch"] == Arm(None, "host")


def test_marks_in_what_makes_whole_batches_are_stages():
    """Guards: marks in a generator of `bottleneck.watch`, which has samples to serve, although none is collated."""
    marks = MarkPlan(sample=("@read", "@tokenize", "@pack"), sample_alone=True)
    job = SimpleNamespace(loader=stream_loader([1]), pinned=False, not_copied="the device is the CPU")
    ladder = ladder_of_job(job, Plan("marks", marks=marks))
    assert [span.name for span in ladder.spans] == ["compute", "other", "pack", "tokenize", "read"]
    assert [rung.name for rung in ladder.rungs if rung.reason is None] == [
        "device", "after_pack", "before_pack", "before_tokenize", "raw",
    ]  # fmt: skip
    assert {name for name, _ in ladder.without} >= {"pack", "tokenize", "read"}


def test_no_room_for_anything():
    ladder = ladder_of(has_samples=False, has_collated=False)
    assert "after_collate" in reasons(ladder)
    assert spans(ladder)[2:] == [("handoff+collate+fetch", "host", "raw")]
    assert ladder.raw == Arm(ALL, "loader")
    assert dict(ladder.without)["handoff+collate+fetch"] == Arm(None, "host")
    assert ladder.without_alone == ()
    assert ladder.serving is None
    assert ladder.cost_arms() == ()


def test_no_room_for_collated_batches():
    # Guards: the hand-off, which nothing then tells apart, was called collation.
    ladder = ladder_of(has_collated=False)
    assert set(reasons(ladder)) == {"after_collate", "after_augment"}
    assert spans(ladder)[2:4] == [
        ("handoff+collate", "host", "before_collate"),
        ("augment", "before_collate", "before_augment"),
    ]
    without = dict(ladder.without)
    assert without["handoff+collate"] == Arm(ALL & ~HANDOFF & ~COLLATE, "host")
    assert not {"handoff", "collate"} & without.keys()
    assert without["load"] == Arm(ALL & ~LOAD, "loader")
    assert "handoff+collate" not in dict(ladder_of(has_collated=False, can_skip_batches=False).without)


# --- the ladder with stages that the user marked: one experiment for each, in the order of execution -------


SAMPLE = ("@decode", "@crop", "@normalize")
COLLATION = ("@pad",)


def marked_ladder(sample=SAMPLE, collate=(), **options):
    marks = MarkPlan(sample=sample, collate=collate, sample_alone=True, collate_alone=True)
    within = ("other", *(site[1:] for site in reversed(sample))) if sample else ("augment", "load")
    return make_ladder(**{"copies": True, "within_sample": within, "marks": marks, **options})


def modes_of(ladder):
    return {rung.name: rung.coupled.mode for rung in ladder.rungs if rung.coupled is not None}


def test_stages_of_a_sample():
    ladder = marked_ladder()
    assert spans(ladder)[3:] == [
        ("collate", "after_collate", "before_collate"),
        ("other", "before_collate", "after_normalize"),
        ("normalize", "after_normalize", "before_normalize"),
        ("crop", "before_normalize", "before_crop"),
        ("decode", "before_crop", "raw"),
    ]
    found = modes_of(ladder)
    assert found["after_normalize"] == ALL | skip_bit(0) | skip_bit(1) | skip_bit(2)
    assert found["before_normalize"] == ALL | skip_bit(0) | skip_bit(1)
    assert found["before_crop"] == ALL | skip_bit(0)
    assert found["raw"] == ALL


def test_stages_of_the_collation():
    ladder = marked_ladder((), COLLATION)
    assert spans(ladder)[3:] == [
        ("collate", "after_collate", "after_pad"),
        ("pad", "after_pad", "before_collate"),
        ("augment", "before_collate", "before_augment"),
        ("load", "before_augment", "raw"),
    ]
    assert modes_of(ladder)["after_pad"] == HANDOFF | COLLATE | skip_bit(0)
    assert modes_of(ladder)["before_collate"] == HANDOFF | COLLATE


def test_without_each_of_them():
    ladder = marked_ladder(collate=COLLATION)
    found = {stage: arm.mode for stage, arm in ladder.without if arm.supply == "loader"}
    assert found == {
        "decode": ALL | skip_bit(0),
        "crop": ALL | skip_bit(1),
        "normalize": ALL | skip_bit(2),
        "pad": ALL | skip_bit(3),
        "other": ALL | SKIP_OTHER,
        "collate": ALL | SKIP_COLLATE_REST,
    }


def test_the_rest_is_not_left_out_where_stages_cannot_work_alone():
    marks = MarkPlan(sample=SAMPLE, collate=COLLATION)
    ladder = make_ladder(within_sample=("other", "normalize", "crop", "decode"), marks=marks)
    assert {"other", "collate"}.isdisjoint(stage for stage, _ in ladder.without)
    assert {"decode", "crop", "normalize", "pad"} <= {stage for stage, _ in ladder.without}
    # What they cost is measured between their neighbours.
    measured = {rung.name for rung in ladder.rungs if rung.workers}
    assert measured == {"after_collate", "after_pad", "before_collate", "after_normalize", "raw"}


# --- what has been measured becomes a measurement, at any moment -------------------------------------------


def block(number):
    return Block(number, 64, 0.5, 4)


def ledger_with(*arms):
    ledger = Ledger({"python": "3"}, {"num_workers": 2})
    ledger.ladder = ladder_of()
    for number, arm in enumerate(arms):
        ledger.add(arm, block(number))
    return ledger


def test_blocks_stand_where_their_arm_belongs():
    raw, drained = Arm(modes.ALL, "loader"), Arm(modes.ALL, "loader", coupled=False)
    measurement = ledger_with(raw, drained, raw).measurement()
    experiments = {e.name: e for e in measurement.experiments}
    assert experiments["raw"].coupled.blocks == (block(0), block(2))
    assert experiments["raw"].drained.blocks == (block(1),)
    assert experiments["device"].coupled is None
    assert not experiments["after_augment"].available
    assert experiments["after_augment"].reason


def test_an_arm_that_two_experiments_share_serves_both():
    without_load = Arm(modes.ALL & ~modes.LOAD, "loader")
    measurement = ledger_with(without_load).measurement()
    assert {w.stage: w.coupled for w in measurement.without}["load"].blocks == (block(0),)
    assert {e.name: e.coupled for e in measurement.experiments}["before_augment"] is not None


def test_a_block_gives_way_to_one_that_was_disturbed_less():
    raw = ladder_of().raw
    ledger = ledger_with(raw, raw, raw)
    before, better = ledger.blocks[raw][1], Block(1, 64, 0.25, 4)
    ledger.exchange(raw, before, better)
    assert ledger.blocks[raw] == [block(0), better, block(2)]


def test_arms_are_named_by_their_experiments():
    known = ladder_of()
    names = [describe_arm(arm, known) for arm in known.arms()]
    assert len(set(names)) == len(names)
    assert {"device", "raw", "raw (drained)", "without collate"} <= set(names)
    assert describe_arm(known.raw, Ledger({}, {}).ladder) == "raw"
