"""Recipes: the places where frameworks keep the callables at which their datasets can be cut.

`docs/recipes.md` says how to write one. A recipe only inspects: it does not call or change anything, and does not
import its framework, which is imported already if there is one of its objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn
from torch.utils.data import DataLoader

from bottleneck.errors import PipelineError
from bottleneck.job.inspect import Item, KeyPath, attributes, entries, listed_callables, resolve, write_path
from bottleneck.job.users_code import summary

CutStage = Literal["augment", "load"]


@dataclass(frozen=True)
class FoundCallable:
    """A callable inside an object of a framework.

    Attributes:
        path: Path from the object; not empty.
        stage: Stage of its calls; None if only its name or its arguments show that.
    """

    path: KeyPath
    stage: CutStage | None = None


class Recipe:
    """Knowledge about one framework. A recipe overrides the methods that its framework needs; the others stay empty.

    Attributes:
        name: Name of the framework. A recipe replaces an earlier one of the same name.
        packages: Packages or modules whose classes this recipe knows, such as `("webdataset",)`. An object belongs
            to a recipe when its class, or one that it derives from, is defined in one of them.
        complete: True if this recipe names all callables of the framework's own classes, so that their other methods
            and attributes are not searched.
    """

    name: str = ""
    packages: tuple[str, ...] = ()
    complete: bool = False

    def callables(self, holder: Any) -> Iterable[FoundCallable]:  # noqa: ARG002 - for recipes that override it
        """Yield the callables that a dataset of the framework keeps."""
        return ()

    def datasets(self, holder: Any) -> Iterable[KeyPath]:  # noqa: ARG002 - for recipes that override it
        """Yield the paths of further datasets in a dataset of the framework."""
        return ()

    def members(self, transform: Any) -> Iterable[KeyPath]:  # noqa: ARG002 - for recipes that override it
        """Yield the paths of the transforms that a transform of the framework is composed of."""
        return ()

    def adopt(self, dataset: Any) -> Any:
        """Return an object that a DataLoader can take instead of one that it cannot; by default the object itself.

        A loader that works on batches would lose that work; scripts use their loaders as they are.
        """
        return dataset


class Torchvision(Recipe):
    """Datasets and transforms of torchvision, v1 and v2."""

    name = "torchvision"
    packages = ("torchvision",)

    def callables(self, holder: Any) -> Iterable[FoundCallable]:
        """Yield the function by which `wrap_dataset_for_transforms_v2` wraps an item before it is transformed."""
        if callable(attributes(holder).get("_wrapper")):
            yield FoundCallable(("_wrapper",), "load")

    def members(self, transform: Any) -> Iterable[KeyPath]:
        """Yield the pair in a StandardTransform; the list of a Compose is found by its name."""
        return ((name,) for name in ("transform", "target_transform") if callable(attributes(transform).get(name)))


class Monai(Recipe):
    """Datasets and transforms of MONAI."""

    name = "MONAI"
    packages = ("monai",)
    complete = True

    def callables(self, holder: Any) -> Iterable[FoundCallable]:
        """Yield the transform, or each part of it if some of them load."""
        transform = attributes(holder).get("transform")
        if not callable(transform):
            return
        parts = [(path, resolve(transform, path)) for path in listed_callables(transform, "transforms")]
        modules = {path: [cls.__module__ for cls in type(part).__mro__] for path, part in parts}
        loading = {path for path, its in modules.items() if any(m.startswith("monai.transforms.io.") for m in its)}
        if not loading:
            yield FoundCallable(("transform",), "augment")
            return
        for path in modules:
            yield FoundCallable(("transform", *path), "load" if path in loading else "augment")


class HuggingFaceDatasets(Recipe):
    """Map-style and iterable datasets; a stream is a chain of steps, each wrapping the one before."""

    name = "Hugging Face datasets"
    packages = ("datasets.arrow_dataset", "datasets.iterable_dataset")  # users call their own modules `datasets`, too
    complete = True

    def callables(self, holder: Any) -> Iterable[FoundCallable]:
        """Yield the transform of a map-style dataset, and the function of a stream's `map`."""
        held = attributes(holder)
        options = held.get("_format_kwargs")
        if isinstance(options, dict) and callable(options.get("transform")):
            yield FoundCallable(("_format_kwargs", Item("transform")), "augment")
        if callable(held.get("function")) and "Filter" not in type(holder).__name__:
            yield FoundCallable(("function",), "augment")

    def datasets(self, holder: Any) -> Iterable[KeyPath]:
        """Yield the steps of a stream."""
        held = attributes(holder)
        for name in ("_ex_iterable", "ex_iterable"):
            if held.get(name) is not None:
                yield (name,)
        yield from (path for path, _ in entries(held.get("ex_iterables"), ("ex_iterables",)))


class WebDataset(Recipe):
    """`WebDataset` and `DataPipeline`; a `WebLoader` is replaced by the DataLoader inside it."""

    name = "WebDataset"
    packages = ("webdataset",)
    complete = True

    def callables(self, holder: Any) -> Iterable[FoundCallable]:
        """Yield the functions of the stages that map samples; decoders are part of loading."""
        for place, stage in entries(attributes(holder).get("pipeline"), ("pipeline",)):
            held = attributes(stage)
            if getattr(held.get("f"), "__name__", "") not in ("_map", "_map_tuple", "_map_dict"):
                continue
            for path, function in (*entries(held.get("args"), ("args",)), *entries(held.get("kw"), ("kw",))):
                if callable(function) and path[-1] != Item("handler"):
                    decodes = type(function).__module__.startswith("webdataset.")
                    yield FoundCallable((*place, *path), "load" if decodes else None)

    def adopt(self, dataset: Any) -> Any:
        """Return the DataLoader inside a WebLoader without other stages."""
        stages = attributes(dataset).get("pipeline")
        alone = isinstance(stages, list) and len(stages) == 1 and isinstance(stages[0], DataLoader)
        return stages[0] if alone and stages else dataset


class LitData(Recipe):
    """Streaming datasets of litdata."""

    name = "litdata"
    packages = ("litdata",)
    complete = True

    def callables(self, holder: Any) -> Iterable[FoundCallable]:
        """Yield the transforms."""
        transform = attributes(holder).get("transform")
        for path, member in ((("transform",), transform), *entries(transform, ("transform",))):
            if callable(member):
                yield FoundCallable(path, "augment")

    def adopt(self, dataset: Any) -> Any:
        """Return a plain DataLoader for a StreamingDataLoader, which only counts and requires litdata's own class."""
        if not isinstance(dataset, DataLoader) or type(dataset).__name__ != "StreamingDataLoader":
            return dataset
        plain: DataLoader[Any] = object.__new__(DataLoader)
        plain.__dict__.update(vars(dataset))
        return plain


_BUILT_IN: tuple[Recipe, ...] = (Torchvision(), Monai(), HuggingFaceDatasets(), WebDataset(), LitData())
_registered: list[Recipe] = []


def register_recipe(recipe: Recipe) -> None:
    """Use an additional recipe in this process; it takes precedence over the built-in ones.

    Args:
        recipe: Replaces an earlier one of the same name.

    Raises:
        TypeError: It is not an instance of a class derived from `bottleneck.Recipe`.
        ValueError: It has no name, or no packages.
    """
    if not isinstance(recipe, Recipe):
        hint = "; write register_recipe(" + recipe.__name__ + "())" if isinstance(recipe, type) else ""
        raise TypeError(
            f"A recipe must be an instance of a class derived from bottleneck.Recipe, not {recipe!r}{hint}."
        )
    packages = recipe.packages
    if not recipe.name or isinstance(packages, str) or not packages:
        raise ValueError("A recipe needs a name and packages, such as name = 'shards', packages = ('shards',).")
    _registered[:] = [recipe, *(other for other in _registered if other.name != recipe.name)]


def recipes_for(value: Any) -> list[Recipe]:
    """Return the recipes that know the class of an object, or one of its base classes."""
    return _recipes_for_modules({cls.__module__ for cls in value.__class__.__mro__})


def _recipes_for_modules(modules: set[str]) -> list[Recipe]:
    return [
        recipe
        for recipe in (*_registered, *_BUILT_IN)
        if any(module == name or module.startswith(f"{name}.") for name in recipe.packages for module in modules)
    ]


def callables(holder: Any) -> list[FoundCallable]:
    """Return the callables that recipes know on an object, each once.

    Raises:
        PipelineError: A recipe of the user fails, or names something that does not exist or cannot be called.
    """
    found: dict[KeyPath, FoundCallable] = {}
    for one in _answers("callables", holder):
        found.setdefault(one.path, one)
    return list(found.values())


def datasets(holder: Any) -> list[KeyPath]:
    """Return the paths of further datasets that recipes know inside one.

    Raises:
        PipelineError: A recipe of the user fails, or names something that does not exist.
    """
    return list(dict.fromkeys(one.path for one in _answers("datasets", holder)))


def members(transform: Any) -> list[KeyPath]:
    """Return the paths of the transforms that a transform is composed of.

    If no recipe knows any, these are the members of a Sequential, or a list of callables named `transforms`, or `ops`
    as in timm.

    Raises:
        PipelineError: A recipe of the user fails, or names something that does not exist or cannot be called.
    """
    paths = [one.path for one in _answers("members", transform)]
    if not paths and isinstance(transform, nn.Sequential):
        paths = [("_modules", Item(name)) for name in transform._modules]
    elif not paths and callable(transform) and not isinstance(transform, type):
        paths = [path for name in ("transforms", "ops") for path in listed_callables(transform, name)]
    return list(dict.fromkeys(paths))


def adopt(dataset: Any) -> Any:
    """Return an object that a DataLoader can take instead of one that it cannot; by default the object itself."""
    for recipe in recipes_for(dataset):
        adopted = recipe.adopt(dataset)
        if adopted is not dataset:
            return adopted
    return dataset


def knows(value: Any) -> bool:
    """Return True if recipes know an object as a dataset of a framework, or as part of one."""
    if isinstance(value, type) or callable(value):
        return False
    return any(True for question in ("callables", "datasets") for _ in _answers(question, value))


def is_machinery(cls: type) -> bool:
    """Return True if a recipe knows everything that can be cut in a class, so that it is not searched."""
    return any(recipe.complete for recipe in _recipes_for_modules({cls.__module__}))


def _answers(question: str, value: Any) -> Iterator[FoundCallable]:
    """Yield the answers of recipes. A built-in one that fails is too old for the framework, and is skipped."""
    for recipe in recipes_for(value):
        try:
            answers = list(getattr(recipe, question)(value))
        except Exception as error:
            if recipe not in _registered:
                continue
            raise PipelineError(
                f"The recipe {recipe.name!r} failed on a {type(value).__name__}: {summary(error)}.",
                "Inspect only what exists, with getattr(holder, name, None).",
            ) from error
        for answer in answers:
            one = answer if isinstance(answer, FoundCallable) else FoundCallable(answer)
            problem = _problem_of(value, one.path, calls=question != "datasets")
            if problem is None:
                yield one
            elif recipe in _registered:
                raise PipelineError(
                    f"The recipe {recipe.name!r} names {write_path(one.path)!r} on a {type(value).__name__}, "
                    f"which {problem}.",
                    "Yield only what exists: inspect it with getattr(holder, name, None) first.",
                )


def _problem_of(holder: Any, path: KeyPath, *, calls: bool) -> str | None:
    try:
        value = resolve(holder, path)
    except (AttributeError, LookupError, TypeError):
        return "does not exist"
    return "cannot be called" if calls and not callable(value) else None
