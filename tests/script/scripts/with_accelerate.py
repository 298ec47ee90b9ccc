"""accelerate's loop: its loader is always a batch ahead, and gradients of two batches are gathered."""

from accelerate import Accelerator
from jobs import make_loader, make_model, wait_for_the_device
from torch import nn

if __name__ == "__main__":
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, optimizer, train = accelerator.prepare(*make_model(), make_loader())
    for _ in range(1000):
        for images, labels in train:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(images), labels)
                accelerator.backward(loss)
                wait_for_the_device()
                optimizer.step()
                optimizer.zero_grad()
    print("the end")
