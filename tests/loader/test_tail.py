"""The second half of a `__getitem__` runs from recorded local variables, or is not used at all."""

import functools

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset

from bottleneck.job.cuts import CutSite, find_sites
from bottleneck.loader.record.cutting import install
from bottleneck.loader.record.tape import Tape
from bottleneck.loader.replay.replay import Replay, ReplayConfig
from bottleneck.loader.replay.tail import make_tail

AUGMENT = (CutSite((), "transform", "augment"),)
SCALE = 3.0


class Base(Dataset):
    def __init__(self):
        self.log = []

    def __len__(self):
        return 4

    def transform(self, image):
        self.log.append("augment")
        return image + 0.5

    def decode(self, index):
        self.log.append("load")
        return torch.full((2,), float(index))

    def finish(self, image):
        return image * 2


class Statements(Base):
    def __getitem__(self, index):
        image = self.decode(index)
        weight = float(index)
        image = self.transform(image)
        return {"image": image * weight, "index": index, "scale": SCALE}


class IfBlock(Base):
    def __getitem__(self, index):
        image = self.decode(index)
        if self.transform is not None:  # noqa: SIM108 - the block is what is tested
            image = self.transform(image)
        else:
            image = image * 0
        return image, index


class InlineLoading(Base):
    """The loading is an argument of the augmentation's call."""

    def __getitem__(self, index):
        return self.finish(self.transform(self.decode(index))), index


class WithSuper(Base):
    def finish(self, image):
        return super().finish(image) + 1

    def __getitem__(self, index):
        image = self.decode(index)
        image = self.transform(image)
        return super().finish(image)


class WithImport(Base):
    def __getitem__(self, index):
        import math

        def halve(value):
            return value / 2

        image, (low, high) = self.decode(index), (0, math.pi)
        image = self.transform(image)
        return [halve(part) for part in image], low, high, math.e


class NoGrad(Base):
    def __getitem__(self, index):
        image = self.decode(index)
        with torch.no_grad():
            image = self.transform(image)
        return image


def make_closure(factor):
    class Closure(Base):
        def __getitem__(self, index):
            image = self.decode(index)
            return self.transform(image) * factor

    return Closure


USABLE = [Statements, IfBlock, InlineLoading, WithSuper, WithImport, NoGrad, make_closure(7)]


def flatten(value):
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [flatten(part) for part in value]
    return {key: flatten(part) for key, part in value.items()} if isinstance(value, dict) else value


def record(dataset, index, sites=AUGMENT):
    tape = Tape()
    cut = install(dataset, sites, tape, in_place=True)
    tape.tail = make_tail(cut, sites)
    with tape.recording() as calls:
        value = cut[index]
    return tape, calls, value


def run_tail(tape, calls):
    load = frozenset(call.site for call in calls if tape.stage(call.site) == "load")
    real = frozenset(call.site for call in calls) - load
    config = ReplayConfig(load, real, copy_outputs=load, recorded_arguments=True, copy_arguments=real)
    return Replay(tape, calls, config).run(tape.tail.function, tape.locals)


@pytest.mark.parametrize("kind", USABLE, ids=lambda kind: kind.__name__)
def test_the_second_half_gives_the_same_item_without_loading(kind):
    dataset = kind()
    tape, calls, value = record(dataset, 2)
    assert tape.tail is not None
    dataset.log.clear()
    for _ in range(2):
        assert flatten(run_tail(tape, calls)) == flatten(value)
    assert dataset.log == ["augment", "augment"]


def test_only_the_local_variables_that_are_needed_are_kept():
    tape, _, _ = record(Statements(), 3)
    assert set(tape.locals) == {"self", "index", "image", "weight"}
    assert make_tail(InlineLoading(), AUGMENT).names == ("index",)


def test_what_the_dataset_holds_is_not_copied_with_the_local_variables():
    class Holding(Base):
        def __init__(self):
            super().__init__()
            self.table = np.zeros(10)

        def __getitem__(self, index):
            table = self.table
            image = self.decode(index)
            return self.transform(image) + float(table.sum())

    dataset = Holding()
    tape, _, _ = record(dataset, 1)
    assert tape.locals["table"] is dataset.table
    assert tape.locals["self"] is dataset


def test_recorded_local_variables_are_copies():
    class InPlace(Base):
        def __getitem__(self, index):
            image = self.decode(index)
            mask = torch.zeros(2)
            image = self.transform(image)
            mask.add_(1)
            return image + mask

    tape, calls, value = record(InPlace(), 1)
    assert tape.locals["mask"].tolist() == [0, 0]
    assert flatten(run_tail(tape, calls)) == flatten(value)


def test_a_variable_that_is_not_bound_on_every_way_is_left_out():
    class Sometimes(Base):
        def __getitem__(self, index):
            image = self.decode(index)
            if index > 100:
                extra = 1
            image = self.transform(image)
            return image + (extra if index > 100 else 0)

    tape, calls, value = record(Sometimes(), 1)
    assert "extra" not in tape.locals
    assert flatten(run_tail(tape, calls)) == flatten(value)


@pytest.mark.parametrize("wrap", [lambda d: Subset(d, [2, 1]), lambda d: ConcatDataset([d])])
def test_wrappers_that_only_pass_on_do_no_harm(wrap):
    class Named(Statements):
        transform = Base.transform

    dataset = wrap(Named())
    sites = tuple(site for site in find_sites(dataset) if site.stage == "augment")
    tape, calls, value = record(dataset, 1, sites)
    assert flatten(run_tail(tape, calls)) == flatten(value)


# --- what is refused ---------------------------------------------------------------------------------------


class EarlyReturn(Base):
    def __getitem__(self, index):
        image = self.decode(index)
        if index == 3:
            return image
        return self.transform(image)


class Generating(Base):
    def __getitem__(self, index):
        yield self.decode(index)
        yield self.transform(self.decode(index))


def decorate(function):
    @functools.wraps(function)
    def wrapper(self, index):
        return function(self, index)

    return wrapper


class Decorated(Base):
    @decorate
    def __getitem__(self, index):
        return self.transform(self.decode(index))


class AnyArguments(Base):
    def __getitem__(self, *index):
        return self.transform(self.decode(*index))


class NotThere(Base):
    def __getitem__(self, index):
        return self.finish(self.decode(index))


class Batched(Base):
    def __getitem__(self, index):
        return self.transform(self.decode(index))

    def __getitems__(self, indices):
        return [self[index] for index in indices]


class LoadsInTheSameBlock(Base):
    """The whole block would run again, loading included, and be taken for augmentation."""

    def __getitem__(self, index):
        if index >= 0:
            image = self.decode(index)
            image = self.transform(image)
        return image


class LoadsInALoop(Base):
    def __getitem__(self, index):
        images = []
        for position in range(index, index + 2):
            image = self.decode(position)
            images.append(self.transform(image))
        return images


class OpensInTheSameBlock(Base):
    def __getitem__(self, index):
        with open(self.path) as file:
            image = self.transform(torch.tensor(float(len(file.read()))))
        return image


class TriesToLoad(Base):
    def __getitem__(self, index):
        try:
            image = self.decode(index)
            return self.transform(image)
        except OSError:
            return None


REFUSED = [
    EarlyReturn, Generating, Decorated, AnyArguments, NotThere, Batched, LoadsInTheSameBlock, LoadsInALoop,
    OpensInTheSameBlock, TriesToLoad,
]  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.__name__)
def test_what_cannot_be_cut_in_two_is_refused(kind):
    assert make_tail(kind(), AUGMENT) is None


def test_a_method_without_source_is_refused():
    namespace = {"Base": Base}
    exec("class NoSource(Base):\n    def __getitem__(self, i):\n        return self.transform(i)", namespace)
    assert make_tail(namespace["NoSource"](), AUGMENT) is None


def test_a_wrapper_that_does_work_of_its_own_is_refused():
    class Wrapper(Subset):
        def __getitem__(self, index):
            return self.dataset[index] + 1

        def __getitems__(self, indices):
            return [self[index] for index in indices]

    dataset = Wrapper(Statements(), [0, 1])
    assert make_tail(dataset, (CutSite(("dataset",), "transform", "augment"),)) is None


def test_augmentations_on_different_datasets_are_refused():
    sites = (CutSite((), "transform", "augment"), CutSite(("dataset",), "transform", "augment"))
    assert make_tail(Statements(), sites) is None
    assert make_tail(Statements(), ()) is None


def test_a_call_from_elsewhere_has_no_local_variables_of_the_item():
    dataset = Statements()
    tape = Tape()
    cut = install(dataset, AUGMENT, tape, in_place=True)
    tape.tail = make_tail(cut, AUGMENT)
    with tape.recording():
        cut.transform(torch.ones(1))
    assert tape.locals is None
