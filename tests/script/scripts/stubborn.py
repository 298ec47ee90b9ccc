"""Goes on whatever is raised, and saves and waits for ever in the end."""

import pathlib
import tempfile
import threading

from jobs import make_loader, make_model, train_on

model, optimizer = make_model()
scratch = tempfile.TemporaryDirectory(prefix="scratch", dir=".")
for _ in range(50):
    try:
        for images, labels in make_loader(num_workers=0):
            train_on(model, optimizer, images, labels)
    except BaseException as error:
        print("went on after", type(error).__name__)
    finally:
        pathlib.Path("saved").write_text("weights")
        threading.Event().wait()
