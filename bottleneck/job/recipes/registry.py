"""All recipes: the built-in ones, and those that users register."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from bottleneck.errors import PipelineError
from bottleneck.job.key_paths import resolve, write_path
from bottleneck.job.recipes.huggingface import HuggingFaceDatasets
from bottleneck.job.recipes.interface import FoundCallable, KeyPath, Recipe, listed_callables
from bottleneck.job.recipes.litdata import LitData
from bottleneck.job.recipes.monai import Monai
from bottleneck.job.recipes.timm import Timm
from bottleneck.job.recipes.torch_nn import TorchModules
from bottleneck.job.recipes.torchdata import TorchdataNodes
from bottleneck.job.recipes.torchvision import Torchvision
from bottleneck.job.recipes.webdataset import WebDataset
from bottleneck.job.safe_repr import summary

_BUILT_IN: tuple[Recipe, ...] = (
    Torchvision(),
    TorchModules(),
    Monai(),
    Timm(),
    HuggingFaceDatasets(),
    WebDataset(),
    TorchdataNodes(),
    LitData(),
)
_registered: list[Recipe] = []
AnswerT = TypeVar("AnswerT")


def register_recipe(recipe: Recipe) -> None:
    """Use a recipe of one's own from now on, in this process; it is asked before the built-in ones.

    Args:
        recipe: Replaces one that was registered before under the same name.

    Raises:
        TypeError: It is no instance of a class derived from `bottleneck.Recipe`.
        ValueError: It has no name, or names no packages.
    """
    if not isinstance(recipe, Recipe):
        hint = "; write register_recipe(" + recipe.__name__ + "())" if isinstance(recipe, type) else ""
        raise TypeError(f"A recipe is an instance of a class derived from bottleneck.Recipe, not {recipe!r}{hint}.")
    packages = recipe.packages
    if not recipe.name or isinstance(packages, str) or not packages:
        raise ValueError("A recipe has a name and packages, such as name = 'shards', packages = ('shards',).")
    _registered[:] = [recipe, *(other for other in _registered if other.name != recipe.name)]


def recipes_for(value: Any) -> list[Recipe]:
    """Return the recipes that know the class of an object, or one that it derives from."""
    return _recipes_for_modules({cls.__module__ for cls in value.__class__.__mro__})


def _recipes_for_modules(modules: set[str]) -> list[Recipe]:
    return [
        recipe
        for recipe in (*_registered, *_BUILT_IN)
        if any(module == name or module.startswith(f"{name}.") for name in recipe.packages for module in modules)
    ]


def callables(holder: Any) -> list[FoundCallable]:
    """Return the callables that recipes know of on an object, each once.

    Raises:
        PipelineError: A recipe of the user's fails, or names what is not there or cannot be called.
    """
    found: dict[KeyPath, FoundCallable] = {}
    for recipe in recipes_for(holder):
        for one in _ask(recipe, recipe.callables, holder):
            if one.path not in found and _is_there(recipe, holder, one.path, calls=True):
                found[one.path] = one
    return list(found.values())


def datasets(holder: Any) -> list[KeyPath]:
    """Return where recipes know of further datasets inside one.

    Raises:
        PipelineError: A recipe of the user's fails, or names what is not there.
    """
    paths = [(recipe, path) for recipe in recipes_for(holder) for path in _ask(recipe, recipe.datasets, holder)]
    return list(dict.fromkeys(path for recipe, path in paths if _is_there(recipe, holder, path)))


def members(transform: Any) -> list[KeyPath]:
    """Return where a transform keeps the transforms that it is composed of.

    Where no recipe knows of any, a list of callables named `transforms` is taken for them.

    Raises:
        PipelineError: A recipe of the user's fails, or names what is not there or cannot be called.
    """
    named = [(recipe, path) for recipe in recipes_for(transform) for path in _ask(recipe, recipe.members, transform)]
    paths = [path for recipe, path in named if _is_there(recipe, transform, path, calls=True)]
    if not paths and callable(transform) and not isinstance(transform, type):
        paths = list(listed_callables(transform, "transforms"))
    return list(dict.fromkeys(paths))


def adopt(dataset: Any) -> Any:
    """Return what a DataLoader can take in the place of an object that it cannot; by default the object."""
    for recipe in recipes_for(dataset):
        adopted = recipe.adopt(dataset)
        if adopted is not dataset:
            return adopted
    return dataset


def knows(value: Any) -> bool:
    """Whether an object is a dataset of a framework, or part of one, as far as recipes can tell."""
    if isinstance(value, type) or callable(value):
        return False
    return any(
        _ask(recipe, recipe.callables, value) or _ask(recipe, recipe.datasets, value) for recipe in recipes_for(value)
    )


def is_machinery(cls: type) -> bool:
    """Whether a recipe knows all that can be cut in a class, so that nothing else is searched in it."""
    return any(recipe.complete for recipe in _recipes_for_modules({cls.__module__}))


def _ask(recipe: Recipe, question: Callable[[Any], Iterable[AnswerT]], value: Any) -> list[AnswerT]:
    try:
        return list(question(value))
    except Exception as error:
        if recipe not in _registered:
            return []  # a newer version of the framework than the one that the recipe was written for
        raise PipelineError(
            f"The recipe {recipe.name!r} failed on a {type(value).__name__}: {summary(error)}.",
            "Let the recipe look only at what is there, with getattr(holder, name, None).",
        ) from error


def _is_there(recipe: Recipe, holder: Any, path: KeyPath, *, calls: bool = False) -> bool:
    try:
        value = resolve(holder, path)
    except (AttributeError, LookupError, TypeError):
        problem = "is not there"
    else:
        if not calls or callable(value):
            return True
        problem = "cannot be called"
    if recipe not in _registered:
        return False
    raise PipelineError(
        f"The recipe {recipe.name!r} names {write_path(path)!r} on a {type(holder).__name__}, which {problem}.",
        "Let the recipe yield only what is there: look with getattr(holder, name, None) first.",
    )
