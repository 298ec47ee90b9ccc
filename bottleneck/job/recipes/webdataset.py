"""WebDataset: a pipeline is a list of stages, of which `map`, `map_tuple`, `map_dict` and `decode` hold callables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.utils.data import DataLoader

from bottleneck.job.recipes.interface import FoundCallable, Item, Recipe, attributes, entries

_MAPS = ("_map", "_map_tuple", "_map_dict")


class WebDataset(Recipe):
    """`WebDataset` and `DataPipeline`; a `WebLoader` stands for the DataLoader in it."""

    name = "WebDataset"
    packages = ("webdataset",)
    complete = True

    def callables(self, holder: Any) -> Iterable[FoundCallable]:
        """Yield the functions of the stages that map samples; decoders are part of loading."""
        for place, stage in entries(attributes(holder).get("pipeline"), ("pipeline",)):
            held = attributes(stage)
            if getattr(held.get("f"), "__name__", "") not in _MAPS:
                continue
            given = [*entries(held.get("args"), ("args",)), *entries(held.get("kw"), ("kw",))]
            for path, function in given:
                if callable(function) and path[-1] != Item("handler"):
                    decodes = type(function).__module__.startswith("webdataset.")
                    yield FoundCallable((*place, *path), "load" if decodes else None)

    def adopt(self, dataset: Any) -> Any:
        """Return the DataLoader inside a WebLoader that does nothing besides."""
        stages = attributes(dataset).get("pipeline")
        alone = isinstance(stages, list) and len(stages) == 1 and isinstance(stages[0], DataLoader)
        return stages[0] if alone and stages else dataset
