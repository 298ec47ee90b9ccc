"""A hand-written loop, with a validation and a checkpoint after each epoch."""

import argparse
import pathlib

import torch
from jobs import Photos, make_loader, make_model, train_on
from torch.utils.data import DataLoader

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--images", type=int, default=640)
    parser.add_argument("--checkpoint", default="model.pt")
    parser.add_argument("--save-each-step", metavar="FILE")
    arguments = parser.parse_args()
    train, validation = make_loader(arguments.images), DataLoader(Photos(32), batch_size=16)
    model, optimizer = make_model()
    for epoch in range(arguments.epochs):
        for images, labels in train:
            train_on(model, optimizer, images, labels)
            if arguments.save_each_step:
                torch.save(model.state_dict(), arguments.save_each_step)
        for images, _ in validation:
            model(images)
        torch.save(model.state_dict(), arguments.checkpoint)
        print("epoch", epoch, "saved", pathlib.Path(arguments.checkpoint).name)
