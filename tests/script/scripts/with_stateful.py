"""torchdata's loader that can be resumed: its state is saved with the model's, within the loop."""

import torch
from jobs import Photos, Slow, make_model, train_on
from torchdata.stateful_dataloader import StatefulDataLoader

if __name__ == "__main__":
    train = StatefulDataLoader(Photos(640, Slow()), batch_size=16, shuffle=True, num_workers=1)
    model, optimizer = make_model()
    steps = 0
    for _ in range(1000):
        for images, labels in train:
            train_on(model, optimizer, images, labels)
            steps += 1
            if steps % 20 == 0:
                torch.save({"model": model.state_dict(), "loader": train.state_dict()}, "saved.pt")
    print("the end")
