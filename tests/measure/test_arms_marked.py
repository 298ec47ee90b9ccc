"""The ladder with stages that the user marked: one experiment for each, in the order of execution."""

from bottleneck.loader import modes
from bottleneck.loader.modes import ALL, COLLATE, HANDOFF, SKIP_COLLATE_REST, SKIP_OTHER, skip_bit
from bottleneck.loader.plan import MarkPlan
from bottleneck.measure.ladder import Arm
from tests.measure.ladders import make_ladder

SAMPLE = ("@decode", "@crop", "@normalize")
COLLATION = ("@pad",)


def ladder_of(sample=SAMPLE, collate=(), **options):
    marks = MarkPlan(sample=sample, collate=collate, sample_alone=True, collate_alone=True)
    within = ("other", *(site[1:] for site in reversed(sample))) if sample else ("augment", "load")
    return make_ladder(**{"copies": True, "within_sample": within, "marks": marks, **options})


def modes_of(ladder):
    return {rung.name: rung.coupled.mode for rung in ladder.rungs if rung.coupled is not None}


def spans(ladder):
    return [(span.name, span.inner, span.outer) for span in ladder.spans]


def test_stages_of_a_sample():
    ladder = ladder_of()
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


def test_experiments_that_give_way_to_them_say_so():
    reasons = {rung.name: rung.reason for rung in ladder_of().rungs if rung.reason}
    assert set(reasons) == {"after_augment", "before_augment"}
    assert "you marked" in reasons["before_augment"]
    ladder = ladder_of(("@load", "@augment"))
    assert not [rung for rung in ladder.rungs if rung.reason]
    assert ("augment", "after_augment", "before_augment") in spans(ladder)
    assert len({rung.name for rung in ladder.rungs}) == len(ladder.rungs)


def test_stages_of_the_collation():
    ladder = ladder_of((), COLLATION)
    assert spans(ladder)[3:] == [
        ("collate", "after_collate", "after_pad"),
        ("pad", "after_pad", "before_collate"),
        ("augment", "before_collate", "before_augment"),
        ("load", "before_augment", "raw"),
    ]
    assert modes_of(ladder)["after_pad"] == HANDOFF | COLLATE | skip_bit(0)
    assert modes_of(ladder)["before_collate"] == HANDOFF | COLLATE


def test_without_each_of_them():
    ladder = ladder_of(collate=COLLATION)
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


def test_samples_that_do_not_fit_are_one_stage():
    ladder = ladder_of(has_samples=False)
    assert spans(ladder)[-1] == ("collate+fetch", "after_collate", "raw")
    assert dict(ladder.without)["collate+fetch"] == Arm(HANDOFF, "loader")
    assert all(rung.reason for rung in ladder.rungs if rung.name not in ("device", "host", "after_collate", "raw"))


def test_every_mode_still_reads_what_the_sampler_asks_for():
    for name, mode in modes_of(ladder_of(collate=COLLATION)).items():
        served = name in ("device", "host", "after_collate", "after_pad", "before_collate")
        assert mode is None or modes.reads_indices(mode) != served


def test_no_room_for_samples_with_a_marked_collation():
    assert spans(ladder_of((), COLLATION, has_samples=False))[3:] == [("collate+pad+fetch", "after_collate", "raw")]
    both = ladder_of(SAMPLE, COLLATION, has_samples=False)
    assert spans(both)[3:] == [("collate+pad+fetch", "after_collate", "raw")]
