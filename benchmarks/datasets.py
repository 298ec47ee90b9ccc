"""Datasets, collate functions and train steps with work planted into them, in the shapes that users write.

All of them at the top of the module, so that workers started by spawn can unpickle them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, default_collate, get_worker_info
from torchvision.transforms import v2

import bottleneck
from benchmarks.work import Work

SIDE = 32
CLASSES = 10
CANVAS = 448


class Load:
    """The loader of a torchvision dataset: a path in, an undecoded-to-decoded image out."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def __call__(self, path: str) -> torch.Tensor:
        """The image at the path, uint8 of shape (3, SIDE, SIDE)."""
        mark = self.work.begin()
        image = make_image(path)
        self.work.complete(mark)
        return image


class Augment:
    """A random augmentation; takes an image, or a dict that holds one."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def __call__(self, sample: Any) -> Any:
        """The sample with its image as float32, flipped at random."""
        mark = self.work.begin()
        if isinstance(sample, dict):
            result: Any = {**sample, "image": _flip(sample["image"])}
        else:
            result = _flip(sample)
        self.work.complete(mark)
        return result


class Images(Dataset[Any]):
    """Shaped like torchvision's: `loader(path)`, then `transform(image)`.

    It holds no list of its samples, so its length costs nothing.
    """

    def __init__(self, length: int, load: Work, augment: Work) -> None:
        self.length = length
        self.loader = Load(load)
        self.transform = Augment(augment)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        image = self.transform(self.loader(f"image-{index}"))
        return image, index % CLASSES


class Crop:
    """A single transform of a known cost."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        mark = self.work.begin()
        result = self.change(image)
        self.work.complete(mark)
        return result

    def change(self, image: torch.Tensor) -> torch.Tensor:
        return image[:, : SIDE // 2, : SIDE // 2]


class Blur(Crop):
    """Another one."""

    def change(self, image: torch.Tensor) -> torch.Tensor:
        return image.to(torch.float32).div_(255)


class Jitter(Crop):
    """And another one."""

    def change(self, image: torch.Tensor) -> torch.Tensor:
        return image + torch.rand(())


class ComposedImages(Images):
    """Its augmentation is a torchvision `Compose` with another composed transform inside."""

    def __init__(self, length: int, load: Work, crop: Work, blur: Work, jitter: Work) -> None:
        super().__init__(length, load, Work("wait", 0.0))
        self.transform: Any = v2.Compose([Blur(blur), v2.RandomApply([Jitter(jitter)], p=1.0), Crop(crop)])


class ImagesLoadedInline(Dataset[Any]):
    """Loads in `__getitem__` itself; only the transform is an attribute."""

    def __init__(self, length: int, load: Work, augment: Work) -> None:
        self.length = length
        self.load_work = load
        self.transform = Augment(augment)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        mark = self.load_work.begin()
        image = make_image(f"image-{index}")
        self.load_work.complete(mark)
        return self.transform(image), index % CLASSES


class ImagesFinished(Images):
    """Does its work after the augmentation, inside `__getitem__`; it counts as loading."""

    def __init__(self, length: int, augment: Work, finish: Work) -> None:
        super().__init__(length, Work("wait", 0.0), augment)
        self.finish_work = finish

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        mark = self.finish_work.begin()
        image = image - image.mean()
        self.finish_work.complete(mark)
        return image, label


class DictImages(Images):
    """Samples are dicts, and a whole batch can be asked for at once, as with Hugging Face datasets."""

    def __getitem__(self, index: int) -> Any:
        row = {"image": self.loader(f"image-{index}"), "label": index % CLASSES}
        return self.transform(row)

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """The samples of a batch, by the protocol that the DataLoader looks for."""
        return [self[index] for index in indices]


class UncutImages(Dataset[Any]):
    """Everything inside `__getitem__`, with nothing in it that could be cut."""

    def __init__(self, length: int, fetch: Work) -> None:
        self.length = length
        self.fetch_work = fetch

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        mark = self.fetch_work.begin()
        image = _flip(make_image(f"image-{index}"))
        self.fetch_work.complete(mark)
        return image, index % CLASSES


class MarkedImages(Dataset[Any]):
    """Everything in `__getitem__` and its methods, which the author has marked; two views of each image."""

    VIEWS = 2

    def __init__(self, length: int, decode: Work, crop: Work, other: Work) -> None:
        self.length = length
        self.decode_work, self.other_work = decode, other
        self.crop_work = Work(crop.kind, crop.seconds / self.VIEWS)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        image = self.decode(index)
        views = [self.crop(image) for _ in range(self.VIEWS)]
        # Begun only now: work that lasted until a planned end of the sample would take up what serving costs.
        mark = self.other_work.begin()
        stacked = torch.stack(views)
        self.other_work.complete(mark)
        return stacked, index % CLASSES

    @bottleneck.stage("decode")
    def decode(self, index: int) -> torch.Tensor:
        """The image, uint8 of shape (3, SIDE, SIDE)."""
        mark = self.decode_work.begin()
        image = make_image(f"image-{index}")
        self.decode_work.complete(mark)
        return image

    @bottleneck.stage("crop")
    def crop(self, image: torch.Tensor) -> torch.Tensor:
        """A part of the image as float32."""
        mark = self.crop_work.begin()
        part = _flip(image[:, : SIDE // 2, : SIDE // 2])
        self.crop_work.complete(mark)
        return part


class StreamedImages(IterableDataset[Any]):
    """A stream, sharded over the workers; work follows the augmentation before an item is handed out."""

    def __init__(self, length: int, load: Work, augment: Work) -> None:
        self.length = length
        self.load_work = load
        self.transform = Augment(augment)

    def __iter__(self) -> Any:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(first, self.length, step):
            mark = self.load_work.begin()
            image = make_image(f"image-{index}")
            self.load_work.complete(mark)
            yield self.transform(image), index % CLASSES


class AnnotatedImages(Images):
    """Images with big annotations: lists of Python objects that have to be pickled to leave the worker."""

    def __init__(self, length: int, load: Work, augment: Work, boxes: int, distinct: int = 64) -> None:
        super().__init__(length, load, augment)
        # Distinct objects: pickle writes an object that it has met before as a reference.
        self.annotations = [make_annotation(number, boxes) for number in range(distinct)]

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return image, label, self.annotations[index % len(self.annotations)]


class CostlyToUnpickle:
    """An object that takes time to rebuild in the process that receives it.

    Args:
        work: What rebuilding costs.
        content: Something to carry.
    """

    def __init__(self, work: Work, content: Any) -> None:
        self.work = work
        self.content = content

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (self.work, self.content)

    def __deepcopy__(self, memo: dict[int, Any]) -> CostlyToUnpickle:
        # The cost is planted in the hand-off between processes only, not in copying within one.
        return CostlyToUnpickle(self.work, self.content)


def rebuild(work: Work, content: Any) -> CostlyToUnpickle:
    """Do the planted work, and restore the object; unpickling calls this in the receiving process."""
    work.run()
    return CostlyToUnpickle(work, content)


class Collate:
    """PyTorch's own collation, and then the planted work.

    The work comes on top: writing the batch into shared memory, as PyTorch's own collation does, counts as
    `handoff`, because every collation has to do it.
    """

    def __init__(self, work: Work) -> None:
        self.work = work

    def __call__(self, samples: list[Any]) -> Any:
        batch = default_collate(samples)
        self.work.run()
        return batch


class CollateOnCanvas:
    """Puts each image on a separate grey canvas, as padding does for detection: a batch of many megabytes.

    It lies in private memory, as what `torch.stack` makes; the queue to the main process copies it.
    """

    def __init__(self, work: Work) -> None:
        self.work = work

    def __call__(self, samples: list[Any]) -> Any:
        mark = self.work.begin()
        batch = torch.full((len(samples), 3, CANVAS, CANVAS), 114 / 255)
        for canvas, (image, _) in zip(batch, samples, strict=True):
            canvas[:, : image.shape[1], : image.shape[2]] = image
        self.work.complete(mark)
        return batch, torch.tensor([label for _, label in samples])


class CollateCostly:
    """Collation whose batch is costly to unpickle in the main process."""

    def __init__(self, handoff: Work) -> None:
        self.handoff = handoff

    def __call__(self, samples: list[Any]) -> Any:
        """The batch with one object in it that takes the planted time to rebuild."""
        images, labels = default_collate(samples)
        return images, labels, CostlyToUnpickle(self.handoff, "annotations")


def collate_annotated(samples: list[Any]) -> Any:
    """Images and labels stacked; annotations in one dict per sample."""
    images, labels, annotations = zip(*samples, strict=True)
    return {
        "image": torch.stack(images),
        "label": torch.tensor(labels),
        "annotations": [{"boxes": boxes} for boxes in annotations],
    }


class Step:
    """A train step that takes its time as an accelerator does: on the clock, with the cores left free."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def __call__(self, batch: Any) -> None:
        self.work.run(self.times(batch))

    def times(self, batch: Any) -> float:
        """Return the factor on the step's usual time for a batch; here the same for each."""
        return 1.0


class CollateMarked:
    """Pads, in a function that the author has marked, and does something else beside."""

    def __init__(self, work: Work, pad: Work) -> None:
        self.work, self.pad_work = work, pad

    def __call__(self, samples: list[Any]) -> Any:
        images = self.pad([image for image, _ in samples])
        self.work.run()
        return images, torch.tensor([label for _, label in samples])

    @bottleneck.stage("pad")
    def pad(self, images: list[torch.Tensor]) -> torch.Tensor:
        mark = self.pad_work.begin()
        batch = torch.stack(images)
        self.pad_work.complete(mark)
        return batch


class SlowCopy:
    """A `to_device` that takes long."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def __call__(self, batch: Any, device: torch.device) -> Any:
        mark = self.work.begin()
        moved = [part.to(device) if isinstance(part, torch.Tensor) else part for part in batch]
        self.work.complete(mark)
        return moved


def make_image(path: str) -> torch.Tensor:
    """The image at a path, the same for the same path."""
    number = int(path.rpartition("-")[2])
    image = torch.arange(3 * SIDE * SIDE, dtype=torch.int32).add_(number).remainder_(251)
    return image.to(torch.uint8).reshape(3, SIDE, SIDE)


def make_annotation(number: int, boxes: int) -> list[dict[str, Any]]:
    """A list of dicts of Python objects, all of them distinct."""
    return [
        {"box": (number + 0.25, box + 0.5, box * 1.5, box + number + 0.75), "name": f"thing {number} {box}"}
        for box in range(boxes)
    ]


def _flip(image: torch.Tensor) -> torch.Tensor:
    result = image.to(torch.float32).div_(255)
    return result.flip(-1) if bool(torch.rand(()) < 0.5) else result
