"""A pipeline is built, replaced and judged by the names of its fields."""

import functools
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, TensorDataset

from bottleneck.errors import PipelineError
from bottleneck.job.checks import check
from bottleneck.job.pipeline import Pipeline


def samples(count=40):
    return TensorDataset(torch.zeros(count, 3), torch.zeros(count, dtype=torch.long))


def job(**changes):
    fields = {"dataset": samples(), "model": nn.Linear(3, 2), "loss_fn": nn.CrossEntropyLoss(), "batch_size": 4}
    return Pipeline(**{**fields, **changes})


class Endless(IterableDataset):
    def __iter__(self):
        return iter(range(100))


class NoLength(Dataset):
    def __getitem__(self, index):
        return torch.zeros(3)


class Mute:
    def __repr__(self):
        raise RuntimeError("no words")


class BrokenLength(NoLength):
    def __len__(self):
        raise OSError("the index file is gone")


class OnlyIterates:
    def __iter__(self):
        return iter(())


class TaggedLoader(DataLoader):
    def __init__(self, path, **options):
        super().__init__(samples(), **options)
        self.path = path


def reverse_collate(batch):
    return batch[::-1]


def test_every_other_keyword_is_a_loader_argument_by_its_own_name():
    pipeline = job(num_workers=2, pin_memory=True, prefetch_factor=3)
    loader = pipeline.make_loader()
    assert dict(pipeline.loader_args) == {"batch_size": 4, "num_workers": 2, "pin_memory": True, "prefetch_factor": 3}
    assert (loader.batch_size, loader.num_workers, loader.prefetch_factor) == (4, 2, 3)


def test_is_immutable():
    pipeline = job()
    with pytest.raises(AttributeError):
        pipeline.model = None
    with pytest.raises(TypeError):
        pipeline.loader_args["batch_size"] = 8


@pytest.mark.parametrize(
    ("misspelt", "meant"), [("batchsize", "batch_size"), ("numworkers", "num_workers"), ("los_fn", "loss_fn")]
)
def test_unknown_keyword_names_the_closest_one(misspelt, meant):
    with pytest.raises(PipelineError, match=f"no field '{misspelt}'.*'{meant}'"):
        job(**{misspelt: 1})


def test_from_mapping_takes_the_same_keys():
    pipeline = Pipeline.from_mapping({"dataset": samples(), "model": nn.Linear(3, 2), "batch_size": 5})
    assert pipeline.make_loader().batch_size == 5
    with pytest.raises(PipelineError, match="no dataset"):
        Pipeline.from_mapping({"model": nn.Linear(3, 2)})
    with pytest.raises(PipelineError, match="no field 7"):
        Pipeline.from_mapping({"dataset": samples(), 7: None})


def test_from_loader_hands_out_the_given_loader():
    loader = DataLoader(samples(), batch_size=4, collate_fn=reverse_collate)
    pipeline = Pipeline.from_loader(loader, model=nn.Linear(3, 2))
    assert pipeline.make_loader() is loader
    assert pipeline.loader is loader
    assert pipeline.dataset is loader.dataset
    assert pipeline.collate_fn is reverse_collate


def test_from_loader_refuses_a_dataset():
    with pytest.raises(PipelineError, match="not a TensorDataset"):
        Pipeline.from_loader(samples(), model=nn.Linear(3, 2))


def test_replace_without_workers_drops_what_only_workers_need():
    pipeline = job(num_workers=2, prefetch_factor=4, persistent_workers=True, timeout=30)
    changed = pipeline.replace(num_workers=0)
    check(changed)
    assert changed.make_loader().num_workers == 0


def test_replace_on_a_loader_keeps_class_attributes_and_arguments():
    generator = torch.Generator()
    loader = TaggedLoader("data", batch_size=4, shuffle=True, collate_fn=reverse_collate, generator=generator)
    clone = Pipeline.from_loader(loader, model=nn.Linear(3, 2)).replace(num_workers=2).make_loader()
    assert type(clone) is TaggedLoader
    assert clone.path == "data"
    assert (clone.num_workers, clone.batch_size, clone.prefetch_factor) == (2, 4, 2)
    assert clone.collate_fn is reverse_collate
    assert clone.generator is generator
    assert clone.sampler is loader.sampler
    assert loader.num_workers == 0


def test_replace_batch_size_beside_an_own_batch_sampler_is_refused():
    loader = DataLoader(samples(), batch_sampler=BatchSampler(range(40), 4, False))
    pipeline = Pipeline.from_loader(loader, model=nn.Linear(3, 2))
    with pytest.raises(PipelineError, match="batch_size cannot be replaced"):
        pipeline.replace(batch_size=8)
    assert len(pipeline.replace(num_workers=2).make_loader()) == 10


def test_a_good_description_passes():
    check(job())
    check(job(dataset=Endless(), loss_fn=None))
    check(job(dataset=NoLength(), sampler=range(20)))
    check(job(model=None, train_step=print))
    check(job(batch_size=None))
    check(job(loss_fn=lambda output: output, model=None, train_step=lambda *batch: None))  # the step may call it so
    check(job(to_device=functools.partial(lambda batch, device: batch), train_step=lambda batch, scale=1: None))
    check(job(dataset=list(range(20))))
    check(Pipeline.from_loader(DataLoader(samples(), batch_size=4), model=nn.Linear(3, 2)))


def test_check_leaves_no_trace_in_an_iterable_loader():
    loader = DataLoader(Endless(), batch_size=4)
    loader.dataset.__class__.__len__ = lambda self: 8
    try:
        check(Pipeline.from_loader(loader, train_step=print))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert sum(1 for _ in loader) == 25
    finally:
        del Endless.__len__


def yielding_step(*batch):
    yield batch


class AsyncStep:
    async def __call__(self, batch):
        return batch


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": None}, "neither model nor train_step"),
        ({"model": nn.Linear}, "model is the class Linear.*model=Linear"),
        ({"model": "resnet"}, "model cannot be called.*'resnet'"),
        ({"loss_fn": nn.CrossEntropyLoss}, "loss_fn is the class"),
        ({"train_step": lambda: None}, r"train_step cannot be called as train_step\(batch\): too many positional"),
        ({"to_device": lambda batch: batch}, r"to_device cannot be called as to_device\(batch, device\)"),
        ({"loss_fn": lambda output: output}, r"loss_fn cannot be called as loss_fn\(output, target\)"),
        ({"train_step": yielding_step}, r"train_step is a generator or coroutine.*def step\(batch\)"),
        ({"train_step": AsyncStep()}, "train_step is a generator or coroutine"),
        ({"optimizer": object()}, r"optimizer has no step\(\)"),
        ({"optimizer": torch.optim.LBFGS(nn.Linear(2, 2).parameters())}, "LBFGS.*closure"),
        ({"augment": 3}, "augment must name"),
        ({"dataset": None}, "dataset must have __getitem__ or be an IterableDataset, and is None"),
        ({"dataset": samples(0)}, "dataset is empty"),
        ({"dataset": "data/train"}, "dataset is text, 'data/train', and not a dataset. Write for example dataset="),
        ({"dataset": TensorDataset}, "dataset is the class TensorDataset"),
        ({"dataset": OnlyIterates()}, "must have __getitem__ or be an IterableDataset"),
        ({"dataset": {"train": [1], "test": [2]}}, r"'train', 'test'.*dataset=data\['train'\]"),
        ({"dataset": NoLength()}, "dataset has no length"),
        ({"dataset": BrokenLength()}, "raised OSError: the index file is gone"),
        ({"dataset": DataLoader(samples())}, "from_loader"),
        ({"batch_size": 41}, "batch_size=41 is never filled.*only 40 samples.*batch_size=40"),
        ({"batch_size": 0}, "batch_size must be a whole number, 1 or more, or None, not 0. Write batch_size=64"),
        ({"batch_size": "8"}, r"batch_size must be.*not '8'.*batch_size=64"),
        ({"num_workers": None}, "num_workers must be"),
        ({"prefetch_factor": 2}, "prefetch_factor=2 needs worker processes"),
        ({"timeout": -1, "num_workers": 1}, "timeout must be a number of seconds"),
        ({"persistent_workers": True}, "persistent_workers=True needs worker processes"),
        ({"pin_memory": "false"}, "pin_memory must be True or False, not 'false'. Write pin_memory=False"),
        ({"drop_last": 0}, "drop_last must be True or False, not 0. Write drop_last=False"),
        ({"shuffle": 1}, "shuffle must be True or False, or None, not 1. Write shuffle=True"),
        ({"sampler": range(40), "shuffle": True}, "does not accept.*mutually exclusive"),
        ({"sampler": [], "batch_size": None}, "chooses no samples"),
        ({"sampler": 5}, r"sampler must be a sampler.*not 5.*sampler=RandomSampler"),
        ({"generator": 5}, r"generator must be a torch.Generator, or None, not 5.*manual_seed"),
        ({"num_workers": 10**9}, "num_workers must be a whole number from 0 to 1024, not 1000000000"),
        ({"collate_fn": Mute()}, "collate_fn cannot be called: it is <Mute object>"),
        ({"multiprocessing_context": "thread", "num_workers": 1}, "valid start method"),
        ({"device": "gpu"}, "device='gpu' is not a device"),
        ({"device": ""}, "device must be a name such as 'cuda:0', not ''"),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(changes, words):
    with pytest.raises(PipelineError, match=words) as caught:
        check(job(**changes))
    assert "\n" not in str(caught.value)


def test_a_loader_that_a_framework_wraps_is_not_asked_for_its_length():
    class Endless(IterableDataset):
        def __iter__(self):
            yield from ()

    wrapper, inner = DataLoader(Endless()), DataLoader(Endless())
    wrapper.base_dataloader = inner  # as accelerate's
    assert Pipeline.from_loader(wrapper, train_step=print).make_loader() is inner
