"""Real epochs before the measuring: those that may end, and the work after them."""

import sys

import pytest
import torch
from torch.utils.data import DataLoader

from bottleneck.loader.observing.meter import Spent
from bottleneck.script.around import Within
from bottleneck.script.first_epochs import FirstEpochs
from tests.script.test_watch import Loop, evaluate, loader_of
from tests.support.sources import written


class Sampler:
    """Samples when the script says so."""

    running, see = 0, None

    def __init__(self, see):
        Sampler.see = see

    def start(self):
        Sampler.running += 1

    def stop(self):
        Sampler.running -= 1


@pytest.fixture(autouse=True)
def nothing_is_kept():
    yield
    Sampler.see = None
    assert not Sampler.running


def work(seconds):
    """A call of the script's that takes some time."""
    if Sampler.running:
        Sampler.see(sys._getframe(), Spent(seconds, 0.0))


EPOCHS = """
for epoch in range({epochs}):
    given.append(train(loader))
    {then}
"""
TRAIN = """
def train(batches):
    given = []
    for batch in batches:
        given.append(batch)
        step()
    return given
"""


def run(then="pass", epochs=9, limit_s=60.0, loader=None, **given):
    """Run a script with a loop over epochs, of four batches each, until it ends; return its loop, and its batches."""
    loop = Loop()
    _, code = written(TRAIN + EPOCHS.format(epochs=epochs, then=then.replace("\n", "\n    ")))
    loop.watch.first_epochs = FirstEpochs(lambda: loop.watch.optimizer_steps, limit_s, sampler=Sampler)
    loop.watch.first_epochs.within = Within(code, 0)
    batches = []
    with loop.watch:
        names = {
            "loader": loader or loader_of(1),
            "step": loop.step,
            "given": batches,
            "work": work,
            "loop": loop,
            **given,
        }
        exec(code, names)
    return loop, batches


def fed_in(batches):
    """The number of the epoch in which the loop was fed, and the real batches before that."""
    epoch = next(at for at, given in enumerate(batches) if "fed" in given)
    return epoch, batches[epoch].index("fed")


def seen(loop, loader=None):
    return loop.watch.first_epochs.evidence(loader, 2)


def test_short_epochs_end_before_the_loop_is_fed():
    loop, batches = run()
    assert fed_in(batches) == (3, 0)
    assert (seen(loop).ends, seen(loop).batches) == (2, 4)  # the first one is no more counted
    assert loop.watch.first_epochs.spent_s > 0


@pytest.mark.parametrize(
    ("options", "fed"),
    [
        ({"limit_s": 0.0}, (0, 3)),
        ({"epochs": 1}, (0, 3)),
        ({"epochs": 2}, (1, 0)),  # no other epoch follows on the second
        ({"loader": DataLoader(torch.zeros(1).expand(10**9), batch_size=2)}, (0, 3)),
    ],
)
def test_an_epoch_is_not_waited_for(options, fed):
    _, batches = run("work(1)", **options)
    assert fed_in(batches) == fed


class Anew:
    """Makes a new dataset for each pass."""

    def __iter__(self):
        return iter(loader_of(1))


def test_epochs_over_datasets_made_anew_are_fed_whatever_the_first_one_took():
    # Guards: a first dataset whose files were cold was waited for, in vain, for as long as the script went on.
    _, batches = run("loop.watch.sources[0].waited_s = 9.0", loader=Anew())
    assert fed_in(batches) == (3, 3)


def test_of_an_epoch_that_was_not_seen_to_end_the_source_says_what_follows():
    loop, _ = run("work(1)", limit_s=0.0)
    found = seen(loop, loader_of(1, batches=5))
    assert (found.ends, found.line, found.skip_steps, found.seconds) == (0, 11, 4, None)
    alone = Loop()
    with alone.watch:
        alone.train(loader_of(1))
    assert seen(alone).ends is None


def test_the_end_of_the_training_is_noticed_at_the_end_of_an_epoch():
    """Guards: a script that trains until it has made some steps would end unmeasured."""
    loop = Loop()
    _, code = written("""
    steps = 0
    while steps < 4:
        for batch in loader:
            given.append(batch)
            step()
            steps += 1
            if steps > 20:
                break
    """)
    loop.watch.first_epochs = FirstEpochs(lambda: loop.watch.optimizer_steps, 60.0, sampler=Sampler)
    loop.watch.first_epochs.within, given = Within(code, 0), []
    with loop.watch:
        exec(code, {"loader": loader_of(1), "step": loop.step, "given": given})
    assert given.index("fed") == 4


def test_passes_over_other_loaders_between_epochs_are_evaluations():
    validation, training = loader_of(2, batches=3), loader_of(1)
    again = DataLoader(training.dataset, batch_size=4)
    then = "evaluate(validation)\nevaluate(again)"
    loop, _ = run(then, loader=training, validation=validation, again=again, evaluate=evaluate)
    found = seen(loop, training)
    assert [(one.evaluations, one.is_training_set) for one in found.others] == [(2, None), (2, True)]
    assert 0 < sum(one.evaluating_s for one in found.others) / found.ends <= found.seconds
    loop, _ = run("for batch in validation: work(1)\nwork(1)", validation=validation)
    assert [line.stage for line in loop.watch.first_epochs.lines()] == ["evaluating", "between"]


def test_the_statements_between_epochs_are_named_with_their_shares():
    loop, _ = run("work(1)\nwork(3)\nfor _ in [work]: work(0)")
    lines = loop.watch.first_epochs.lines()
    assert [(line.stage, line.line, line.share, line.code) for line in lines] == [
        ("between", 12, 0.75, "work(3)"), ("between", 11, 0.25, "work(1)"),
    ]  # fmt: skip
    assert lines[0].calls.endswith("test_first_epochs.work")


@pytest.mark.parametrize(("then", "share"), [("if epoch % 5 >= 0: work(1)\nwork(1)", 0.6), ("work(1)", 1.0)])
def test_what_is_done_in_some_epochs_only_counts_as_its_part(then, share):
    loop, _ = run(then)
    assert seen(loop).each_epoch_share == pytest.approx(share)


def test_an_evaluation_in_some_epochs_only_says_so():
    loop, _ = run("if epoch % 4 >= 0:\n    evaluate(validation)", validation=loader_of(2), evaluate=evaluate)
    [found] = seen(loop).others
    assert (found.evaluations, found.every) == (2, 4)


def test_files_that_are_saved_between_epochs(tmp_path):
    loop, _ = run("torch.save({}, path)", torch=torch, path=tmp_path / "model.pt")
    assert (seen(loop).saves, seen(loop).saving_s > 0) == (2, True)
    assert torch.save.__module__ == "torch.serialization"
    assert not hasattr(torch.save, "__wrapped__")


def test_real_steps_that_were_asked_for_show_the_ends_of_their_epochs():
    loop, loader, given = Loop(steps=10), loader_of(1), []
    with loop.watch:
        for _ in range(4):
            given.append(loop.train(loader))
    assert fed_in(given) == (2, 2)
    assert seen(loop).ends == 1


def test_workers_that_persist_are_no_reason_to_lose_an_end():
    loader = loader_of(1, num_workers=1, persistent_workers=True)
    loop, batches = run(loader=loader)
    assert (fed_in(batches), seen(loop).ends) == ((3, 0), 2)
    loader._iterator._shutdown_workers()


def test_a_loop_that_gathers_gradients_is_fed_from_the_beginning_of_an_update_on():
    """Guards: where the rest of an epoch turns out to be too long, that may be anywhere in an update."""
    loop = Loop()
    given = []
    loop.watch.first_epochs = FirstEpochs(lambda: loop.watch.optimizer_steps, 60.0, sampler=Sampler)
    _, code = written("""
    for epoch in range(3):
        for number, batch in enumerate(loader):
            given.append(batch)
            if number == 13:
                epochs.limit_s = 0.0
            if number % 4 == 3:
                step()
    """)
    loop.watch.first_epochs.within = Within(code, 0)
    with loop.watch:
        names = {"loader": loader_of(1, batches=40), "step": loop.step, "given": given}
        exec(code, {**names, "epochs": loop.watch.first_epochs})
    assert given.index("fed") == 16


def test_ranks_do_not_wait_each_by_itself(monkeypatch):
    monkeypatch.setattr("bottleneck.script.watch.world_size", lambda: 2)
    _, batches = run()
    assert fed_in(batches) == (0, 3)
