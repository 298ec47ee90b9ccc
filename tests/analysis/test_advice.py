from dataclasses import replace

import pytest

from bottleneck.analysis.advice import advise as advising
from bottleneck.analysis.advice.case import Suggestion, rule
from bottleneck.analysis.analyse import analyse
from bottleneck.results.records import Interval
from tests.analysis.rule_case import with_stage
from tests.analysis.simulated import AUGMENT_BOUND, DEVICE_BOUND, LADDER, Job, keep_rounds, measure

WORKERS = {"num_workers": 4, "batch_size": 32, "pin_memory": True, "persistent_workers": True}


def advice(job, *, rounds=8, noise=0.01, seed=0, **settings):
    pipeline = {**WORKERS, **settings.pop("pipeline", {})}
    changed = replace(job, pipeline=pipeline, **settings)
    return {a.id: a for a in analyse(measure(changed, rounds=rounds, noise=noise, seed=seed)).advice}


def test_the_bottleneck_gets_a_next_experiment_with_its_numbers():
    item = advice(AUGMENT_BOUND)["cheaper-augment"]

    assert item.stage == "augment"
    assert "a step of 24.8 ms" in item.why
    assert "ms" in item.why
    assert item.evidence["gain"] == pytest.approx(2.35, rel=0.05)


def test_edits_lead_and_of_these_the_largest_gain():
    given = list(
        advice(
            AUGMENT_BOUND,
            environment={"cpu_cores_available": 5},
            evidence={"first_batch_s": 1.0},
            pipeline={"persistent_workers": False, "dataset_length": 10_000},
        )
    )

    assert given == ["more-workers", "persistent-workers", "cheaper-augment"]


def test_a_measured_gain_is_that_of_the_stage_if_free_and_the_others_are_estimates():
    result = analyse(measure(replace(AUGMENT_BOUND, pipeline=WORKERS, environment={"cpu_cores_available": 6})))
    given = {a.id: a for a in result.advice}
    augment = next(stage for stage in result.stages if stage.name == "augment")

    assert given["cheaper-augment"].gain == augment.gain_if_free
    assert given["cheaper-augment"].gain_basis == "measured"
    assert given["more-workers"].gain == Interval(1.5, 1.0, 1.5)
    assert given["more-workers"].gain_basis == "estimated"


def test_a_gain_that_was_not_measured_is_not_called_so():
    item = advice(replace(AUGMENT_BOUND, without={}))["cheaper-augment"]

    assert item.gain_basis == "estimated"
    assert item.gain.estimate > 1.5


def test_where_no_gain_is_claimed_there_is_none():
    item = advice(DEVICE_BOUND)["faster-step"]

    assert (item.gain, item.gain_basis) == (None, None)


def with_rules(monkeypatch, *suggestions):
    """Let these be all that the rules yield."""

    @rule("made-up")
    def made_up(case):
        yield from suggestions

    monkeypatch.setattr(advising, "RULES", (made_up,))


def suggest(stage, title, gain=1.5, **fields):
    return Suggestion(stage=stage, title=title, why="because", how="code", evidence={"number": 1}, gain=gain, **fields)


def test_a_general_remedy_is_given_only_where_no_specific_one_is(monkeypatch):
    with_rules(
        monkeypatch,
        suggest("augment", "general", 2.0, fallback=True),
        suggest("augment", "specific", 1.2),
        suggest("load", "other general", fallback=True),
    )
    titles = [a.title for a in analyse(measure(replace(AUGMENT_BOUND, pipeline=WORKERS))).advice]

    assert titles == ["other general", "specific"]


def test_advice_on_a_stage_that_costs_nothing_is_dropped(monkeypatch):
    with_rules(monkeypatch, *(suggest(name, name) for name in (None, *AUGMENT_BOUND.without, "compute")))

    def stages(job):
        return {a.stage for a in analyse(measure(replace(job, pipeline=WORKERS))).advice}

    # The copy adds 0.1 ms to a step of 24.7; collation and hand-off take 3.6 and 4.9 % of it, but hidden.
    assert stages(AUGMENT_BOUND) == {None, "compute", "augment", "load", "collate", "handoff"}
    cheap = {"after_collate": 0.0001, "before_collate": 0.0002, "before_augment": 0.0225, "raw": 0.0246}
    assert stages(replace(AUGMENT_BOUND, drained=cheap)) == {None, "compute", "augment", "load"}
    # A loader that is never waited for costs nothing, whatever it takes by itself.
    assert stages(DEVICE_BOUND) == {None, "compute"}


def test_an_interval_of_an_estimate_is_kept(monkeypatch):
    with_rules(monkeypatch, suggest(None, "x", Interval(1.3, 1.1, 1.5)))

    (item,) = analyse(measure(AUGMENT_BOUND)).advice

    assert (item.gain, item.gain_basis) == (Interval(1.3, 1.1, 1.5), "estimated")


def test_no_workers_for_a_loader_that_costs_little():
    job = replace(AUGMENT_BOUND, drained={**AUGMENT_BOUND.drained, "raw": 0.0020})

    assert "use-workers" not in advice(job, pipeline={"num_workers": 0})


def test_more_workers_up_to_what_the_device_takes_or_the_cores_allow():
    many = advice(AUGMENT_BOUND, environment={"cpu_cores_available": 64})["more-workers"]
    few = advice(AUGMENT_BOUND, environment={"cpu_cores_available": 6})["more-workers"]

    assert many.how.endswith("--set num_workers=12")  # 4 x 24.6 / 9.4 ms, and a tenth to spare
    assert few.how.endswith("--set num_workers=6")
    assert "not enough" in few.why
    assert "not enough" not in many.why


def test_a_script_sets_its_loader_itself():
    item = advice(AUGMENT_BOUND, environment={"cpu_cores_available": 6}, pipeline={"source": "script"})["more-workers"]

    assert item.how == "DataLoader(..., num_workers=6)"
    waits = spent(replace(LOAD_BOUND, pipeline={"source": "script"}), "load", 0.020, 0.001)["wait-less"]
    assert "try num_workers=8" in waits.how


@pytest.mark.parametrize("cores", [None, 4])
def test_no_more_workers_without_cores_for_them(cores):
    environment = {} if cores is None else {"cpu_cores_available": cores}

    assert "more-workers" not in advice(AUGMENT_BOUND, environment=environment)


def test_on_the_cpu_nothing_is_moved_to_the_device():
    given = advice(AUGMENT_BOUND, environment={"cpu_cores_available": 64, "device": "cpu"})

    assert "device" not in given["cheaper-augment"].title + given["cheaper-augment"].how


COPY_BOUND = Job(
    coupled=dict(zip(LADDER, (0.010, 0.018, 0.0181, 0.0181, 0.0182, 0.0182), strict=True)),
    drained={"after_collate": 0.001, "before_collate": 0.002, "before_augment": 0.004, "raw": 0.005},
    without={"copy": 0.0101, "handoff": 0.018, "collate": 0.018, "augment": 0.018, "load": 0.018},
)


def test_pinned_memory_for_a_real_copy_to_a_gpu():
    given = advice(COPY_BOUND, pipeline={"pin_memory": False}, environment={"device": "cuda:0"})

    assert list(given) == ["pin-memory"]  # the general remedy of the stage is not needed
    assert given["pin-memory"].evidence["exposed_s_per_batch"] == pytest.approx(0.008, rel=0.05)


BLOCKING = {"pipeline": {"pin_memory": True, "to_device": "move"}, "loader": {"mentions_non_blocking": False}}
PAGEABLE = {"pipeline": {"pin_memory": False}, "loader": {}}


@pytest.mark.parametrize(
    ("id_", "job"), [("pin-memory", PAGEABLE), ("non-blocking", BLOCKING)], ids=["pageable", "blocking"]
)
@pytest.mark.parametrize(
    ("bytes_per_s", "gain"),
    [
        (None, 0.0182 / 0.0101),  # at most: as if the copy were free
        (25e9, 0.0182 / (0.0182 - 0.004)),  # 4 of its 8 ms remain
        (10e9, None),  # the copy is as fast as it can be already
    ],
)
def test_what_the_bytes_take_from_pinned_memory_is_not_promised(id_, job, bytes_per_s, gain):
    evidence = {"payload": {"bytes": 100_000_000}, "loader": {**job["loader"], "pinned_bytes_per_s": bytes_per_s}}
    found = advice(COPY_BOUND, pipeline=job["pipeline"], environment={"device": "cuda:0"}, evidence=evidence)

    if gain is None:
        assert id_ not in found
        return
    given = found[id_]
    assert (given.gain.low, given.gain_basis) == (1.0, "estimated")
    assert given.gain.estimate == pytest.approx(gain, rel=0.05)
    assert given.evidence["bus_s"] == (bytes_per_s and 100_000_000 / bytes_per_s)


@pytest.mark.parametrize(("pinned", "device"), [(True, "cuda"), (False, "mps")])
def test_no_pinned_memory_where_it_is_pinned_or_no_such_thing(pinned, device):
    given = advice(COPY_BOUND, pipeline={"pin_memory": pinned}, environment={"device": device})

    assert "pin-memory" not in given


def test_more_workers_do_not_help_a_copy():
    assert "more-workers" not in advice(COPY_BOUND, environment={"cpu_cores_available": 64})


def test_workers_are_kept_only_where_starting_them_is_a_real_part_of_the_epoch():
    def given(length):
        return advice(
            DEVICE_BOUND,
            evidence={"first_batch_s": 3.0},
            pipeline={"persistent_workers": False, "dataset_length": length},
        )

    assert "persistent-workers" in given(5_000)  # an epoch of 4.7 s
    assert "persistent-workers" not in given(1_000_000)
    assert "persistent-workers" not in given(None)


def test_a_device_bound_job_is_told_to_leave_its_input_alone():
    given = advice(DEVICE_BOUND, environment={"cpu_cores_available": 64})

    assert list(given) == ["faster-step"]
    assert given["faster-step"].evidence["device_s_per_batch"] == pytest.approx(0.030, rel=0.02)


def test_an_undecided_job_is_told_to_measure_longer():
    job = Job(coupled={"device": 0.010, "raw": 0.0107})

    item = advice(job, rounds=6, noise=0.04, seed=4)["measure-longer"]

    assert item.how.startswith("--budget ")


def test_a_stage_of_the_users_own_gets_advice_under_its_name():
    measurement = measure(AUGMENT_BOUND)
    renamed = replace(
        measurement,
        stages=tuple(replace(s, name="decode<b>") if s.name == "augment" else s for s in measurement.stages),
        without=tuple(replace(w, stage="decode<b>") if w.stage == "augment" else w for w in measurement.without),
    )

    result = analyse(renamed)

    assert result.verdict.bottleneck == "decode<b>"
    assert [(a.id, a.stage) for a in result.advice] == [("cheaper-stage", "decode<b>")]


def test_nothing_is_advised_before_anything_was_measured():
    assert analyse(keep_rounds(measure(AUGMENT_BOUND), 0)).advice == ()


# --- waiting and computing ---------------------------------------------------------------------------------

LOAD_BOUND = Job(
    coupled=dict(zip(LADDER, (0.0094, 0.0095, 0.0097, 0.0098, 0.0116, 0.0247), strict=True)),
    drained={"after_collate": 0.0012, "before_collate": 0.0021, "before_augment": 0.0040, "raw": 0.0246},
    without={"copy": 0.0246, "handoff": 0.0244, "collate": 0.0243, "augment": 0.0230, "load": 0.0116},
)


def spent(job, stage, wall_s, cpu_s, **evidence):
    """The advice of a job in which a stage was seen to take so much time."""
    measured = measure(replace(job, pipeline={**WORKERS, **job.pipeline}, evidence=evidence))
    spans = tuple(
        replace(span, wall_s_per_batch=wall_s, cpu_s_per_batch=cpu_s) if span.name == stage else span
        for span in measured.stages
    )
    return {a.id: a for a in analyse(replace(measured, stages=spans)).advice}


def test_loading_that_waits_is_not_told_to_decode_faster():
    given = spent(LOAD_BOUND, "load", 0.020, 0.001)

    assert "cheaper-load" not in given
    item = given["wait-less"]
    assert "waiting 95 %" in item.why
    assert "decod" not in item.title + item.why + item.how
    assert "--set num_workers=8" in item.how
    assert item.evidence["waiting_share"] == pytest.approx(0.95)


@pytest.mark.parametrize(
    ("pipeline", "how"),
    [
        ({}, "Pipeline("),
        ({"source": "script"}, "@bottleneck.stage("),
        ({"source": "script", "loader": None}, "--flamegraph"),
    ],
)
def test_fetch_is_cut_by_what_the_job_can_be_cut_by(pipeline, how):
    job = with_stage(replace(LOAD_BOUND, pipeline={**WORKERS, **pipeline}), "load", "fetch")
    assert how in next(one.how for one in analyse(job).advice if one.id == "cut-fetch")


def test_loading_that_waits_for_workers_within_the_dataset_is_told_so():
    job = replace(LOAD_BOUND, pipeline={"num_workers": 0})
    item = spent(job, "load", 0.020, 0.001, loader={"own_workers": 2})["wait-less"]

    assert "workers within the dataset" in item.title
    assert "storage" not in item.title + item.how
    assert "--set num_workers" not in item.how


def test_of_batches_without_a_dataloader_it_is_not_said_what_they_wait_for():
    # Guards: threads of batchgenerators' own, which were told to keep the data on a local disk, in shards.
    job = with_stage(replace(LOAD_BOUND, pipeline={"source": "script", "loader": None}), "load", "fetch")
    spans = tuple(
        replace(span, wall_s_per_batch=0.020, cpu_s_per_batch=0.001) if span.name == "fetch" else span
        for span in job.stages
    )
    item = {one.id: one for one in analyse(replace(job, stages=spans)).advice}["wait-less"]

    assert "makes the batches" in item.title
    assert "shards" not in item.how
    assert "bottleneck.stage" not in item.how


def test_loading_that_computes_is_told_to_decode_less():
    given = spent(LOAD_BOUND, "load", 0.020, 0.019)

    assert "wait-less" not in given
    assert "decode" in given["cheaper-load"].title
    assert "It computes for 95 % of its time." in given["cheaper-load"].why


def test_an_augmentation_that_waits_is_told_to_look_for_what():
    given = spent(AUGMENT_BOUND, "augment", 0.020, 0.002)

    assert "cheaper-augment" not in given
    assert "lock" in given["wait-less"].how


def test_standing_in_the_queue_for_a_core_is_no_waiting():
    given = spent(LOAD_BOUND, "load", 0.020, 0.007, core_wait_per_cpu_s=1.5)

    assert "cheaper-load" in given


@pytest.mark.parametrize("wall_s", [None, 0.0])
def test_where_nothing_was_seen_nothing_is_said_of_waiting(wall_s):
    item = spent(LOAD_BOUND, "load", wall_s, 0.0)["cheaper-load"]

    assert "waiting" not in item.why
    assert "computes" not in item.why
    assert "waiting_share" not in item.evidence


def test_threads_that_take_more_cpu_time_than_passes_do_not_wait():
    assert spent(LOAD_BOUND, "load", 0.020, 0.070)["cheaper-load"].evidence["waiting_share"] == 0.0
