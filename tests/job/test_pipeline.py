"""A pipeline is built, replaced and judged by the names of its fields."""

import functools
import warnings
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, TensorDataset

from bottleneck.errors import PipelineError
from bottleneck.job.checks import check
from bottleneck.job.pipeline import Pipeline, field_names


def samples(count=40):
    return TensorDataset(torch.zeros(count, 3), torch.zeros(count, dtype=torch.long))


def job(**changes):
    fields = {
        "dataset": samples(),
        "model": nn.Linear(3, 2),
        "loss_fn": nn.CrossEntropyLoss(),
        "batch_size": 4,
    }
    return Pipeline(**{**fields, **changes})


class Endless(IterableDataset):
    def __iter__(self):
        return iter(range(100))


class NoLength(Dataset):
    def __getitem__(self, index):
        return torch.zeros(3)


class LengthGiven:
    def __init__(self, length):
        self.length = length

    def __len__(self):
        if isinstance(self.length, BaseException):
            raise self.length
        return self.length

    def __getitem__(self, index):
        return index


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
    assert dict(pipeline.loader_args) == {
        "batch_size": 4,
        "num_workers": 2,
        "pin_memory": True,
        "prefetch_factor": 3,
    }
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


def test_a_loader_as_keyword_points_to_from_loader():
    with pytest.raises(PipelineError, match="from_loader"):
        job(loader=DataLoader(samples()))


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


def test_from_loader_unwraps_what_accelerate_prepared():
    class Prepared:
        base_dataloader = DataLoader(samples())

    assert Pipeline.from_loader(Prepared(), model=nn.Linear(3, 2)).loader is Prepared.base_dataloader


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


def test_replace_dataset_on_a_loader_follows_with_pytorchs_samplers():
    pipeline = Pipeline.from_loader(DataLoader(samples(40), batch_size=4, shuffle=True), model=nn.Linear(3, 2))
    changed = pipeline.replace(dataset=samples(12)).make_loader()
    assert sorted(changed.sampler) == list(range(12))
    assert type(changed.sampler) is RandomSampler


def test_what_needs_workers_can_be_replaced_on_a_loader_that_has_some():
    given = Pipeline.from_loader(DataLoader(TensorDataset(torch.zeros(8)), num_workers=1), train_step=print)
    assert given.replace(prefetch_factor=4).make_loader().prefetch_factor == 4
    assert given.replace(num_workers=0).replace(num_workers=2).replace(persistent_workers=True).loader.num_workers == 2
    with pytest.raises(PipelineError, match="needs worker processes"):
        given.replace(num_workers=0).replace(prefetch_factor=4)


def test_replace_keeps_a_wrapped_batch_sampler_unless_it_is_concerned():
    loader = DataLoader(samples(), batch_size=4)

    class Forever(BatchSampler):
        pass

    wrapped = Forever(loader.sampler, 4, False)
    object.__setattr__(loader, "batch_sampler", wrapped)
    pipeline = Pipeline.from_loader(loader, model=nn.Linear(3, 2))
    assert pipeline.replace(pin_memory=False).make_loader().batch_sampler is wrapped
    assert type(pipeline.replace(batch_size=5).make_loader().batch_sampler) is BatchSampler


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
        ({"model": None}, "no model and no train_step"),
        ({"model": nn.Linear}, "model is the class Linear.*model=Linear"),
        ({"model": "resnet"}, "model cannot be called.*'resnet'"),
        ({"loss_fn": nn.CrossEntropyLoss}, "loss_fn is the class"),
        ({"train_step": 3}, "train_step cannot be called"),
        ({"train_step": lambda: None}, r"train_step cannot be called as train_step\(batch\): too many positional"),
        ({"train_step": lambda batch, extra: None}, r"missing a required argument: 'extra'.*def step\(batch\)"),
        ({"to_device": lambda batch: batch}, r"to_device cannot be called as to_device\(batch, device\)"),
        ({"collate_fn": lambda a, b: a}, r"collate_fn cannot be called as collate_fn\(samples\)"),
        ({"loss_fn": lambda output: output}, r"loss_fn cannot be called as loss_fn\(output, target\)"),
        ({"train_step": yielding_step}, r"train_step is a generator or coroutine.*def step\(batch\)"),
        ({"train_step": partial(yielding_step, 1)}, "train_step is a generator or coroutine"),
        ({"train_step": AsyncStep()}, "train_step is a generator or coroutine"),
        ({"to_device": "cuda"}, "to_device cannot be called"),
        ({"optimizer": torch.optim.SGD}, "optimizer is the class SGD"),
        ({"optimizer": object()}, r"optimizer has no step\(\)"),
        ({"optimizer": torch.optim.LBFGS(nn.Linear(2, 2).parameters())}, "LBFGS.*closure"),
        ({"augment": 3}, "augment must name"),
        ({"augment": ["transform", 3]}, "augment must name"),
        ({"dataset": None}, "dataset must have __getitem__ or be an IterableDataset, and is None"),
        ({"dataset": samples(0)}, "dataset is empty"),
        ({"dataset": []}, "dataset is empty"),
        ({"dataset": "data/train"}, "dataset is text, 'data/train', and not a dataset. Write for example dataset="),
        ({"dataset": TensorDataset}, "dataset is the class TensorDataset"),
        ({"dataset": OnlyIterates()}, "must have __getitem__ or be an IterableDataset"),
        ({"dataset": {"train": [1], "test": [2]}}, r"'train', 'test'.*dataset=data\['train'\]"),
        ({"dataset": NoLength()}, "dataset has no length"),
        ({"dataset": BrokenLength()}, "raised OSError: the index file is gone"),
        ({"dataset": LengthGiven(3.5)}, "raised TypeError: 'float' object.*Let its __len__ return"),
        ({"dataset": LengthGiven(-1)}, "raised ValueError"),
        ({"dataset": LengthGiven(SystemExit(3))}, "raised SystemExit: 3"),
        ({"dataset": DataLoader(samples())}, "from_loader"),
        ({"batch_size": 41}, "batch_size=41 is never filled.*only 40 samples.*batch_size=40"),
        ({"batch_size": 0}, "batch_size must be a whole number, 1 or more, or None, not 0. Write batch_size=64"),
        ({"batch_size": True}, "batch_size must be.*not True"),
        ({"batch_size": "8"}, r"batch_size must be.*not '8'.*batch_size=64"),
        ({"batch_size": 8.0}, "batch_size must be.*not 8.0"),
        ({"num_workers": None}, "num_workers must be"),
        ({"prefetch_factor": 0, "num_workers": 1}, "prefetch_factor must be"),
        ({"prefetch_factor": 2}, "prefetch_factor=2 needs worker processes"),
        ({"timeout": -1, "num_workers": 1}, "timeout must be a number of seconds"),
        ({"persistent_workers": True}, "persistent_workers=True needs worker processes"),
        ({"pin_memory": "false"}, "pin_memory must be True or False, not 'false'. Write pin_memory=False"),
        ({"drop_last": 0}, "drop_last must be True or False, not 0. Write drop_last=False"),
        ({"shuffle": 1}, "shuffle must be True or False, or None, not 1. Write shuffle=True"),
        ({"sampler": range(40), "shuffle": True}, "does not accept.*mutually exclusive"),
        ({"sampler": [], "batch_size": None}, "chooses no samples"),
        ({"sampler": 5}, r"sampler must be a sampler.*not 5.*sampler=RandomSampler"),
        ({"sampler": torch.utils.data.RandomSampler}, "sampler must be a sampler"),
        ({"batch_sampler": 5}, "batch_sampler must be an iterable of lists"),
        ({"worker_init_fn": 5}, "worker_init_fn must be a function of the worker's number, or None, not 5"),
        ({"generator": 5}, r"generator must be a torch.Generator, or None, not 5.*manual_seed"),
        ({"num_workers": 10**9}, "num_workers must be a whole number from 0 to 1024, not 1000000000"),
        ({"collate_fn": Mute()}, "collate_fn cannot be called: it is <Mute object>"),
        ({"num_workers": Mute()}, "num_workers must be a whole number from 0 to 1024, not <Mute object>"),
        ({"multiprocessing_context": "thread", "num_workers": 1}, "valid start method"),
        ({"device": "gpu"}, "device='gpu' is not a device"),
        ({"device": 1.5}, "device must be a name"),
        ({"device": ""}, "device must be a name such as 'cuda:0', not ''"),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(changes, words):
    with pytest.raises(PipelineError, match=words) as caught:
        check(job(**changes))
    assert "\n" not in str(caught.value)


def test_the_names_of_the_contract_are_fields():
    names = field_names()
    assert set(names) >= {"dataset", "collate_fn", "model", "loss_fn", "optimizer", "train_step", "to_device"}
    assert set(names) >= {"device", "augment", "batch_size", "num_workers", "pin_memory", "worker_init_fn"}
    assert "self" not in names


@pytest.mark.parametrize("length", [0, 1, 10**9])
def test_the_length_of_a_stream_is_not_relied_on(length):
    class Promising(Endless):
        def __len__(self):
            return length

    check(Pipeline(dataset=Promising(), train_step=print, batch_size=4))


def test_a_sampler_whose_length_cannot_be_told_is_none_of_our_business():
    class Unknown(list):
        def __len__(self):
            raise RuntimeError("ask later")

    check(Pipeline(dataset=samples(), sampler=Unknown(), train_step=print, batch_size=4))
