"""Ends in its own way after some steps: `short.py STEPS HOW`."""

import os
import pathlib
import queue
import signal
import sys
import threading

from jobs import make_loader, make_model, train_on

steps, how = int(sys.argv[1]), sys.argv[2]
patience, steps = steps, 100_000 if how == "early stopping" else steps
model, optimizer = make_model()


def fill(batches):
    while True:
        for batch in make_loader(num_workers=0):
            batches.put(batch)


def train_from_a_queue():
    batches = queue.Queue(2)
    threading.Thread(target=fill, args=(batches,)).start()
    for _ in range(steps):
        train_on(model, optimizer, *batches.get())


class EarlyStopping:
    """Stops when the loss has not fallen enough for some steps."""

    def __init__(self, by):
        self.by, self.best, self.waited = by, float("inf"), 0

    def stops(self, loss):
        self.best, self.waited = (loss, 0) if loss < self.best - self.by else (self.best, self.waited + 1)
        return self.waited == patience


def train():
    done, early = 0, EarlyStopping(by=100.0)
    while done < steps:
        for images, labels in make_loader(num_workers=0):
            loss = train_on(model, optimizer, images, labels)
            done += 1
            if how == "early stopping" and early.stops(loss):
                return
            if done == steps:
                break
    if how == "raise":
        raise ValueError("the loss is not finite")
    if how == "exit":
        sys.exit("no disk space")
    if how == "os._exit":
        os._exit(7)
    if how == "interrupt":
        signal.raise_signal(signal.SIGINT)
    if how == "hang":
        threading.Event().wait()


try:
    if how == "queue":
        train_from_a_queue()
    elif how == "thread":
        threading.Thread(target=train).start()
    else:
        train()
except KeyboardInterrupt:
    pathlib.Path("saved").write_text("weights")
finally:
    print("cleaned up", file=sys.stderr)
