"""What a script saves while it is measured: weights that were trained on cached batches, for a later run to take up."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bottleneck.measure.profile import shorten
from bottleneck.results.format import names, plural
from bottleneck.results.records import Warning

_SAVERS = (
    ("torch", "save", "f", 1),
    # What all of safetensors' functions that write a file go through, under whatever name a library has imported them.
    ("safetensors.torch", "serialize_file", "filename", 1),
    # It makes the file of a name of its own, from what `torch.save` has written to memory.
    ("lightning.fabric.plugins.io.torch_io", "TorchCheckpointIO.save_checkpoint", "path", 2),
    ("lightning_fabric.plugins.io.torch_io", "TorchCheckpointIO.save_checkpoint", "path", 2),
)
"""Of each function: its module, its name there, the name of the argument that is the path, and the position."""
_MOST_NAMED = 3


class Saved:
    """Notes the files that a script saves by these functions, from `begin` to `end`.

    Seen is what is loaded by then. What is written to a file that is open already has no name here.
    """

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        self._files: dict[str, None] = {}
        self._process = os.getpid()
        self._folder = Path()

    def begin(self) -> None:
        """Note files from now on."""
        self._process = os.getpid()
        with contextlib.suppress(OSError):  # it was removed
            self._folder = Path(os.getcwd())
        for module, name, argument, position in _SAVERS:
            *owners, function = name.split(".")
            owner: Any = sys.modules.get(module)
            for part in owners:
                owner = getattr(owner, part, None)
            original = getattr(owner, function, None)
            if original is not None:
                noting = self._noting(original, argument, position)
                self._replaced.append((owner, function, original, noting))
                setattr(owner, function, noting)

    def end(self) -> None:
        """Put everything back."""
        while self._replaced:
            owner, name, original, noting = self._replaced.pop()
            if getattr(owner, name) is noting:  # and nobody else has replaced it since
                setattr(owner, name, original)

    def _noting(self, original: Callable[..., Any], argument: str, position: int) -> Callable[..., Any]:
        @functools.wraps(original)
        def save(*args: Any, **kwargs: Any) -> Any:
            done = original(*args, **kwargs)
            self._note(args[position] if len(args) > position else kwargs.get(argument))
            return done

        return save

    def _note(self, path: Any) -> None:
        if not isinstance(path, str | os.PathLike) or os.getpid() != self._process:
            return
        name = os.fsdecode(path)
        with contextlib.suppress(OSError):  # the working directory was removed
            self._files[name if "://" in name else os.path.abspath(name)] = None

    def warnings(self) -> Iterator[Warning]:
        """Yield one that lists the files, if there are any."""
        if not self._files:
            return
        named = names([shorten(file, self._folder) for file in list(self._files)[:_MOST_NAMED]])
        more = len(self._files) - _MOST_NAMED
        files = f"{plural(len(self._files), 'file')}, such as {named}" if more > 0 else named
        yield Warning(
            "saved-while-measured",
            f"While it was measured, the training saved {files}. Weights in there were trained on the same few batches "
            "again and again: do not resume a training from them.",
        )
