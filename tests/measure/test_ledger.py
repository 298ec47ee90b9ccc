"""What has been measured becomes a measurement, at any moment."""

from bottleneck.loader import modes
from bottleneck.measure.ladder import Arm
from bottleneck.measure.ledger import Ledger, describe_arm
from bottleneck.results.evidence import Evidence
from bottleneck.results.records import Block
from tests.measure.ladders import make_ladder


def ladder():
    return make_ladder(copies=True, within_sample=("augment", "load"))


def block(number):
    return Block(number, 64, 0.5, 4)


def ledger_with(*arms):
    ledger = Ledger({"python": "3"}, {"num_workers": 2})
    ledger.ladder = ladder()
    for number, arm in enumerate(arms):
        ledger.add(arm, block(number))
    return ledger


def test_before_anything_is_known_every_experiment_is_there_without_numbers():
    measurement = Ledger({}, {}).measurement()
    assert [e.name for e in measurement.experiments] == list(modes.EXPERIMENTS)
    assert not any(e.available or e.coupled or e.drained for e in measurement.experiments)
    assert all("before it was measured" in e.reason for e in measurement.experiments)
    assert measurement.stages == ()
    assert measurement.without == ()


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
    raw = ladder().raw
    ledger = ledger_with(raw, raw, raw)
    before, better = ledger.blocks[raw][1], Block(1, 64, 0.25, 4)
    ledger.exchange(raw, before, better)
    assert ledger.blocks[raw] == [block(0), better, block(2)]


def test_a_measurement_does_not_change_with_the_ledger_afterwards():
    ledger = ledger_with()
    before = ledger.measurement()
    ledger.evidence = Evidence(first_batch_s=1.0)
    ledger.add(Arm(None, "device"), block(0))
    ledger.warn("late", "too late")
    assert before.evidence == Evidence()
    assert before.warnings == ()
    assert all(not e.coupled for e in before.experiments)


def test_a_warning_is_kept_once():
    ledger = Ledger({}, {})
    for message in ("one", "one", "two"):
        ledger.warn("id", message)
    assert [w.message for w in ledger.measurement().warnings] == ["one", "two"]


def test_the_time_is_in_utc():
    assert Ledger({}, {}).measurement().created.endswith("+00:00")


def test_arms_are_named_by_their_experiments():
    known = ladder()
    names = [describe_arm(arm, known) for arm in known.arms()]
    assert len(set(names)) == len(names)
    assert {"device", "raw", "raw (drained)", "without collate"} <= set(names)
    assert describe_arm(known.raw, None) == "raw"
