"""ultralytics' own trainer: a loader that keeps its iterator, a validation and a checkpoint after each epoch.

Its mosaic ends after the first epoch: the trainer then closes its loader's workers and starts others.
"""

import pathlib
import tempfile

import numpy as np
import torch
from jobs import Slow
from PIL import Image
from ultralytics.data.build import build_dataloader
from ultralytics.models.yolo.detect import DetectionTrainer

EPOCHS = 1000


class SlowLabels(Slow):
    def __call__(self, labels):
        super().__call__(0)
        return labels


class Trainer(DetectionTrainer):
    def build_dataset(self, img_path, mode="train", batch=None):
        dataset = super().build_dataset(img_path, mode, batch)
        if mode == "train":
            dataset.build_transforms = self.slowed(dataset.build_transforms)
            dataset.transforms = dataset.build_transforms(self.args)
        return dataset

    def slowed(self, build):
        def build_transforms(hyp=None):
            transforms = build(hyp)
            for _ in range(30):
                transforms.append(SlowLabels())
            return transforms

        return build_transforms

    def get_dataloader(self, dataset_path, batch_size=16, rank=0, mode="train"):
        """With a worker, which ultralytics starts on a GPU only."""
        return build_dataloader(self.build_dataset(dataset_path, mode, batch_size), batch_size, 1, mode == "train")


def make_images(folder):
    rng = np.random.default_rng(0)
    for split, count in (("train", 480), ("val", 8)):
        for kind in ("images", "labels"):
            (folder / kind / split).mkdir(parents=True)
        for number in range(count):
            pixels = rng.integers(0, 255, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "images" / split / f"{number}.jpg")
            (folder / "labels" / split / f"{number}.txt").write_text("0 0.5 0.5 0.4 0.4\n")
    description = folder / "data.yaml"
    description.write_text(f"path: {folder}\ntrain: images/train\nval: images/val\nnames: {{0: thing}}\n")
    return description


if __name__ == "__main__":
    data = make_images(pathlib.Path(tempfile.mkdtemp(dir=".")).absolute())
    torch.set_num_threads(1)
    options = {
        "model": "yolov8n.yaml", "data": str(data), "epochs": EPOCHS, "close_mosaic": EPOCHS - 1, "imgsz": 32,
        "batch": 4, "nbs": 4, "device": "cpu", "amp": False, "plots": False, "optimizer": "SGD",
        "project": str(data.parent),
    }  # fmt: skip
    Trainer(overrides=options).train()
    print("the end")
