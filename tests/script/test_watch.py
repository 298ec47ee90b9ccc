"""The training loader is the one between whose batches an optimizer steps."""

import gc
import itertools
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

import bottleneck
from bottleneck.errors import UsageError
from bottleneck.script import iterators
from bottleneck.script.watch import Watch
from tests.support.datasets import Repeated


def loader_of(value, batches=4, **options):
    return DataLoader(TensorDataset(torch.full((2 * batches,), float(value))), batch_size=2, **options)


class Loop:
    """A training loop in one of its forms, under watch."""

    def __init__(self, steps=3, wanted=None):
        self.began = []
        self.watch = Watch(self.begin, steps, wanted)
        self.parameter = torch.nn.Parameter(torch.zeros(1))
        self.optimizer = torch.optim.SGD([self.parameter], lr=0.1)

    def begin(self, source, optimizers):
        self.began.append((source, optimizers))
        return itertools.repeat("fed", 5).__iter__().__next__

    def step(self):
        self.parameter.grad = torch.ones(1)
        self.optimizer.step()

    def train(self, batches):
        given = []
        for batch in batches:
            given.append(batch)
            self.step()
        return given


@pytest.fixture
def loop():
    made = Loop()
    with made.watch:
        yield made


def test_after_enough_steps_the_loop_is_fed(loop):
    loader = loader_of(1)
    given = loop.train(loader)
    assert [batch == "fed" for batch in given] == [False] * 3 + [True] * 5
    [(source, optimizers)] = loop.began
    assert (source.loader, optimizers) == (loader, (loop.optimizer,))


def test_a_validation_in_between_is_left_alone(loop):
    loader, validation = loader_of(1, batches=2), loader_of(2, batches=3)
    given = []
    for _ in range(2):
        given += loop.train(loader)
        assert all(batch != "fed" for batch in validation)
    assert given.count("fed") == 5
    assert [source.loader for source, _ in loop.began] == [loader]


def test_epochs_are_counted_together(loop):
    # Guards: an epoch of one batch, and a new loader for each.
    dataset = TensorDataset(torch.zeros(2))
    given = [batch for _ in range(4) for batch in loop.train(DataLoader(dataset, batch_size=2))]
    assert [batch == "fed" for batch in given] == [False] * 3 + [True] * 5


@pytest.mark.parametrize(
    "wrap",
    [
        itertools.cycle,
        lambda loader: (batch for batch in loader),
        lambda loader: (next(it) for it in [iter(loader)] for _ in range(8)),
        lambda loader: (pair[1] for pair in enumerate(loader)),
    ],
)
def test_wrappers_are_seen_through(loop, wrap):
    given = loop.train(itertools.islice(wrap(loader_of(1, batches=8)), 8))
    assert "fed" in given


@pytest.mark.parametrize("gathered", [4, 20])
def test_gradients_of_several_batches_may_be_gathered(loop, gathered):
    # Guards: gradients of 20 batches are gathered for a step; until then the optimizer that is there makes none.
    given = []
    for number, batch in enumerate(loader_of(1, batches=5 * gathered)):
        given.append(batch)
        loop.parameter.square().sum().backward()
        if number % gathered == gathered - 1:
            loop.optimizer.step()
    assert given.index("fed") == 3 * gathered
    assert loop.watch.loop.batches_per_update == gathered


def evaluate(batches, most=5):
    """Stops in any case: a loop that is fed sees no end."""
    with torch.no_grad():
        return list(itertools.islice(batches, most))


@pytest.mark.parametrize("options", [{}, {"batch_size": 4}])
def test_an_evaluation_on_the_training_set_is_left_alone(loop, options):
    # Guards: a loop that evaluates on its training set now and then, before and after it is fed.
    loader = loader_of(1, batches=20)
    given = []
    for batch in loader:
        given.append(batch)
        loop.step()
        assert "fed" not in evaluate(DataLoader(loader.dataset, **{"batch_size": 2, **options}))
    assert given.count("fed") == 5
    assert [source.loader for source, _ in loop.began] == [loader]


def test_a_dataset_that_is_made_anew_is_fed_once_it_trains(loop):
    # Guards: after each rollout a new buffer, in a loop that would never request one of our batches again.
    given = [batch for value in range(3) for batch in loop.train(itertools.islice(loader_of(value, batches=8), 4))]
    assert [batch == "fed" for batch in given] == [False] * 3 + [True] + [False] + [True] * 3 + [False] + [True]
    # A validation of the same class stays what it is, and so does a training with its own optimizer.
    assert "fed" not in evaluate(loader_of(9))
    loop.watch.next_batch = lambda: "fed"
    loop.optimizer = torch.optim.SGD([loop.parameter], lr=0.1)
    assert "fed" not in loop.train(loader_of(10))


@pytest.mark.parametrize("ahead", [False, True])
def test_a_thread_that_only_takes_the_batches_is_told_from_one_that_trains(loop, ahead):
    batches = iter(loader_of(1, batches=8))
    with ThreadPoolExecutor(1) as other:
        for _ in range(4):
            other.submit(next, batches).result() if ahead else next(batches)
            loop.step()
            evaluate(loader_of(2))  # ends nothing of the other thread's
    assert (len(loop.began), loop.watch.loop.has_queue) == (1, ahead)


def moved_in(loop):
    """The parts of a batch that the loop was seen to move, when it is fed."""
    [(source, _)] = loop.began
    return source.moves.learnt().moved


def to_meta(loop, batches, train=lambda batch: batch):
    for batch in batches:
        train([part.to("meta") if isinstance(part, torch.Tensor) else part for part in batch])
        loop.step()


def test_what_the_loop_moves_is_seen_before_it_is_fed(loop):
    to_meta(loop, loader_of(1))
    assert moved_in(loop) == {0}


def test_what_a_loop_moves_is_seen_before_it_compiles_and_nothing_is_compiled_for_that(loop):
    # Guards: what runs while calls are noted is compiled once for that, and once without.
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    model = torch.nn.Linear(2, 2)
    compiled = torch.compile(lambda x: model(x) + 1, backend=backend)
    to_meta(loop, loader_of(1), lambda batch: compiled(torch.zeros(2)))
    assert (moved_in(loop), len(graphs)) == ({0}, 1)


def test_loaders_of_the_diagnosis_are_not_watched(loop):
    loop.watch.is_measuring = lambda: True
    assert type(iter(loader_of(1))).__module__.startswith("torch")
    assert loop.watch.sources == []


def test_of_several_loaders_the_one_that_is_waited_for_is_fed(loop):
    quick, slow = loader_of(1, batches=30), loader_of(2, batches=30, collate_fn=lambda items: sum(range(200_000)))
    fed = []
    for first, second in zip(quick, slow, strict=False):
        fed.append((first == "fed", second == "fed"))
        loop.step()
    assert not any(first for first, _ in fed)
    assert any(second for _, second in fed)
    assert loop.watch.others == [quick]
    assert loop.watch.waited_elsewhere_s > 0


def test_a_loader_of_every_third_step_feeds_the_loop_too_and_a_validation_does_not(loop):
    # Guards: a generator that trains once for several steps of its discriminator.
    often, seldom, validation = (iter(loader_of(value, batches=60)) for value in range(3))
    frequent = loader_of(3)
    loop.watch._begin = lambda *_: lambda: "fed"
    for step in range(48):
        next(often)
        loop.step()
        if step % 3 == 2:
            next(seldom)
            loop.step()
        if step % 24 == 20:
            next(validation)
        assert step % 4 or len(list(frequent)) == 4
    assert [loader.dataset[0][0].item() for loader in loop.watch.others] == [1.0]


class OwnOptimizer(Loop):
    """A loop whose optimizer is somebody's own."""

    def __init__(self, back=torch.Tensor.backward, **options):
        super().__init__(**options)
        del self.optimizer
        self.back = back

    def step(self):
        self.back(self.parameter.square().sum())
        with torch.no_grad():
            self.parameter -= 0.1 * (self.parameter.grad if self.parameter.grad is not None else 1.0)


@pytest.fixture
def no_optimizer(monkeypatch):
    """No object of this process is an optimizer: those of other tests may still be there."""
    monkeypatch.setattr(gc, "get_objects", list)


def by_its_function(loss):
    torch.autograd.backward(loss)


BACK = [torch.Tensor.backward, by_its_function]


@pytest.mark.usefixtures("no_optimizer")
@pytest.mark.parametrize("back", BACK)
def test_without_an_optimizer_of_pytorchs_a_backward_pass_is_the_step(back):
    loop = OwnOptimizer(back)
    with loop.watch:
        list(loader_of(2))
        given = loop.train(loader_of(1, batches=8))
    assert [batch == "fed" for batch in given] == [False] * 3 + [True] * 5
    assert (loop.began[0][1], loop.watch.backward.count) == ((), 8)


@pytest.mark.parametrize(
    ("batches", "num_workers", "persistent", "noted"),
    [(1, 0, False, False), (1, 1, False, True), (1, 1, True, False), (2, 1, False, False)],
    ids=["none", "each", "they stay", "some"],
)
def test_workers_that_begin_anew_for_each_batch_are_noted(loop, batches, num_workers, persistent, noted, monkeypatch):
    ticks = itertools.accumulate(itertools.count(1))  # each pass takes longer than the one before
    monkeypatch.setattr(iterators, "time", SimpleNamespace(perf_counter=ticks.__next__))
    loader = loader_of(1)
    # For what looks at it; nothing is started.
    vars(loader).update(num_workers=num_workers, persistent_workers=persistent)
    for _ in range(4):
        loop.watch.stop_learning()
        passes = loop.watch._begin_pass(loader, lambda _: iter(range(9)))
        loop.train(itertools.islice(passes, batches))
    assert loop.watch.starts_workers_for_each_batch == noted
    assert (found := loop.watch.restarts).get("restarts") == (3 if noted else None)
    assert not noted or found["restarting_step_s"] == (of := loop.began[0][0].pass_s)[0] < of[-1]


class Other(TensorDataset):
    """Feeds no training loop."""


@pytest.mark.parametrize(
    ("wanted", "remedy"),
    [
        ("1", None),
        ("TensorDataset", None),
        ("Tensor", "Did you mean 'TensorDataset'? It takes its batches from 1 (TensorDataset)."),
        ("1 (T", "It takes its batches from 1 (TensorDataset)."),
        ("Other", "It takes its batches from 1 (TensorDataset)."),
        ("0", "It takes its batches from 1 (TensorDataset)."),
    ],
)
def test_a_loader_that_does_not_feed_the_loop_is_refused_at_once(wanted, remedy):
    loop, refused = Loop(wanted=wanted), []
    loop.watch.refuse = refused.append
    with loop.watch:
        evaluate(DataLoader(Other(torch.zeros(4)), batch_size=2))
        given = loop.train(itertools.islice(loader_of(1, batches=20), 11))
    assert ("fed" in given) == (remedy is None)
    expected = [f"The training loop takes no batches from a loader called {wanted!r}. {remedy}"] if remedy else []
    assert [str(error) for error in refused] == expected


@pytest.mark.parametrize(("steps", "wanted", "every"), [(15, "TensorDataset", 1), (5, "Other", 4)])
def test_a_loader_that_is_wanted_is_waited_for_where_it_feeds_the_loop_late_or_seldom(steps, wanted, every):
    loop, given = Loop(steps, wanted), []
    with loop.watch:
        other = iter(DataLoader(Other(torch.ones(60)), batch_size=2))
        for number, batch in enumerate(loader_of(1, batches=30)):
            loop.step()
            given.append(batch)
            if number % every == every - 1:
                given.append(next(other))
                loop.step()
    assert "fed" in given


class ByItself(DataLoader):
    """Begins its passes as torchdata's StatefulDataLoader does."""

    def __iter__(self):
        self._iterator = self._get_iterator()
        return self._iterator


class Endless(DataLoader):
    """Keeps its iterator over all epochs, whose sampler never ends, as ultralytics' InfiniteDataLoader does."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        object.__setattr__(self, "batch_sampler", Repeated(self.batch_sampler))
        self.iterator = None

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        if self.iterator is None:
            self.iterator = self._get_iterator()
        for _ in range(len(self)):
            yield next(self.iterator)


def endless(value=1, batches=4):
    return Endless(TensorDataset(torch.full((2 * batches,), float(value))), batch_size=2)


def test_a_loader_that_keeps_its_iterator_is_fed_through_it(loop):
    loader, validation, given = endless(), endless(2, batches=3), []
    for _ in range(2):
        given += loop.train(loader)
        breaks = loop.watch.loop.breaks
        assert "fed" not in evaluate(validation)
        assert loop.watch.loop.breaks > breaks
    assert [batch == "fed" for batch in given] == [False] * 3 + [True] * 5
    assert loop.began[0][0].loader is loader


def test_afterwards_a_loader_with_an_iterator_of_ours_gives_its_own_batches():
    # Guards: workers that persist keep the iterator, which gave a training after the diagnosis no batch at all.
    made, loader = Loop(), loader_of(1, num_workers=1, persistent_workers=True)
    with made.watch:
        assert "fed" in made.train(loader)
    assert len(made.train(loader)) == 4
    assert len(made.began) == 1
    loader._iterator._shutdown_workers()


def test_a_loader_that_keeps_its_workers_ends_with_its_last_pass(loop):
    # Guards: a validation that made a loader for each pass left the workers of all of them behind.
    loop.train(loader_of(1))
    first, kept = loader_of(2), []  # the first one stands for the dataset
    assert len(evaluate(first)) == 4
    for _ in range(2):
        # Other start methods move the dataset to shared memory, for as long as the watch knows it.
        options = {"num_workers": 1, "persistent_workers": True, "multiprocessing_context": "fork"}
        loader = DataLoader(first.dataset, batch_size=2, **options)
        assert len(evaluate(loader)) == 4
        kept.append(weakref.ref(loader))
        del loader
    assert [ref() for ref in kept] == [None, None]


def test_afterwards_loaders_are_as_before():
    before = ByItself.__iter__
    with Loop().watch:
        assert ByItself.__iter__ is not before
        assert not isinstance(iter(loader_of(1)), _SingleProcessDataLoaderIter)
    assert ByItself.__iter__ is before
    assert "__init_subclass__" not in vars(DataLoader)
    for loader in (loader_of(1), ByItself(loader_of(1).dataset), endless()):
        assert len(list(loader)) == len(loader)
    assert type(iter(loader_of(1))) is _SingleProcessDataLoaderIter


@pytest.mark.parametrize(
    ("wanted", "first_is_fed"), [("0", True), ("1", False), ("Second", False), ("TensorDataset", True)]
)
def test_which_of_several_is_fed_can_be_said(wanted, first_is_fed):
    class Second(TensorDataset):
        pass

    loop = Loop(wanted=wanted)
    other = DataLoader(Second(torch.ones(60)), batch_size=2)
    with loop.watch:
        fed = []
        for first, second in zip(loader_of(1, batches=30), other, strict=False):
            fed.append((first == "fed", second == "fed"))
            loop.step()
    assert any(first for first, _ in fed) == first_is_fed
    assert any(second for _, second in fed) != first_is_fed
    assert loop.watch.names == ["0 (TensorDataset)", "1 (Second)"]


# --- what `bottleneck.watch` has wrapped -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batches", "name"),
    [
        (list("abcdefgh"), "list"),
        ((letter for letter in "abcdefgh"), "generator"),
        (lambda: "a", "<lambda>"),
        (loader_of(1, batches=8), "TensorDataset"),
    ],
)
def test_wrapped_batches_need_no_optimizer(batches, name):
    loop = Loop()
    with loop.watch:
        list(loader_of(2))  # not this one
        given = list(itertools.islice(bottleneck.watch(batches), 8))
    assert [batch == "fed" for batch in given] == [False] * 3 + [True] * 5
    [(source, optimizers)] = loop.began
    assert (type(source.loader.dataset).__name__, optimizers) == (name, ())


def get_batch(split, size=1):
    return split * size


def test_a_wrapped_function_is_called_as_before_and_an_evaluation_gets_its_own():
    # Guards: nanoGPT's get_batch('train'), which also gives the batches of its validation.
    loop, wrapped, given, validated = Loop(), bottleneck.watch(get_batch), [], []
    with loop.watch:
        for _ in range(8):
            given.append(wrapped("train", size=1))
            loop.step()
            with torch.no_grad():
                validated.append(wrapped("val", 2))
    assert given == ["train"] * 3 + ["fed"] * 5
    assert validated == ["valval"] * 8
    [(source, _)] = loop.began
    assert type(source.loader.dataset).__name__ == "get_batch"
    assert list(itertools.islice(source.loader, 2)) == ["train"] * 2  # and not what was asked for last
    assert wrapped("after") == "after"


class Unseen(DataLoader):
    """Has a custom iterator that does not go through PyTorch's."""

    def __iter__(self):
        return (self.collate_fn([self.dataset[at] for at in batch]) for batch in self.batch_sampler)


@pytest.mark.parametrize("kind", [Endless, Unseen])
def test_a_wrapped_loader_with_an_iterator_of_its_own_needs_no_optimizer(kind):
    loop, loader = Loop(), kind(TensorDataset(torch.zeros(10)), batch_size=2)
    with loop.watch:
        given = [batch for _ in range(2) for batch in itertools.islice(bottleneck.watch(loader), 4)]
    assert [batch == "fed" for batch in given] == [False] * 3 + [True] * 5
    [(source, _)] = loop.began
    assert type(source.loader) is (kind if kind is Endless else DataLoader)


def test_outside_of_a_diagnosis_wrapped_batches_are_as_they_are():
    batches = [1, 2, 3]
    wrapped = bottleneck.watch(batches)
    assert (list(wrapped), len(wrapped), bool(wrapped), wrapped.index(2)) == (batches, 3, True, 1)
    assert (next(wrapped), next(wrapped), list(wrapped)) == (1, 2, batches)
    assert type(iter(wrapped)) is type(iter(batches))
    calls = iter(range(5))
    assert next(bottleneck.watch(lambda: next(calls))) == 0
    assert bottleneck.watch(get_batch)("val", size=2) == "valval"
    with pytest.raises(TypeError, match="'list' object is not callable"):
        wrapped()
    with pytest.raises(TypeError):
        len(bottleneck.watch(letter for letter in "ab"))
    with pytest.raises(UsageError, match="bottleneck.watch"):
        bottleneck.watch(7)
