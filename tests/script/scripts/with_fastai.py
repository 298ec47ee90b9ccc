"""fastai's Learner: its own loader and optimizer, a validation and a checkpoint after each epoch."""

from fastai.vision.all import (
    CategoryBlock,
    CrossEntropyLossFlat,
    DataBlock,
    DisplayedTransform,
    IntToFloatTensor,
    Learner,
    RandomSplitter,
    SaveModelCallback,
    TensorImage,
    TransformBlock,
    torch,
)
from jobs import Slow, make_model, wait_for_the_device


class SlowItem(DisplayedTransform):
    def encodes(self, image: TensorImage):
        return Slow()(image)


def make_image(number):
    return TensorImage(torch.full((3, 16, 16), number % 7, dtype=torch.uint8))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = make_model()[0]

    def forward(self, images):
        wait_for_the_device()
        return self.layers(images)


if __name__ == "__main__":
    block = DataBlock(
        blocks=(TransformBlock(type_tfms=make_image, batch_tfms=IntToFloatTensor), CategoryBlock),
        get_items=lambda count: list(range(count)),
        get_y=lambda number: number % 10,
        splitter=RandomSplitter(0.1, seed=1),
        item_tfms=SlowItem,
    )
    loaders = block.dataloaders(640, bs=16, num_workers=1, device=torch.device("cpu"))
    learner = Learner(loaders, Model(), loss_func=CrossEntropyLossFlat(), cbs=[SaveModelCallback()])
    learner.fit_one_cycle(50)
    print("the end")
