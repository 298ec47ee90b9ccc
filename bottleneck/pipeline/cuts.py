"""Where a dataset can be cut: the callables on it, and on the datasets inside it, that do its work.

Only a look: nothing is called and nothing is changed. Which of the sites are really called, and with what,
shows when they are recorded (`bottleneck.staging.cutting`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any, Literal

import torch
from torch.utils.data import Dataset

from bottleneck.errors import PipelineError

CutStage = Literal["augment", "load"]

_AUGMENT_NAME = re.compile(
    r"(^|_)(transforms?|transformations?|augment(ation|ations|er|or|ed)?|augs?|tfms?|tf|pre_?process(or|ing)?)($|_)",
    re.IGNORECASE,
)
_LOAD_NAME = re.compile(
    r"(^|_)(load|loads|loader|loading|read|reads|reader|open|opener|fetch|fetcher|decode|decoder|imread|parse|parser)($|_)",
    re.IGNORECASE,
)
_AUGMENT_MODULES = ("torchvision.transforms", "albumentations", "monai.transforms", "kornia", "timm.data")
_MAX_DEPTH = 6
MAX_MEMBERS = 64


@dataclass(frozen=True)
class CutSite:
    """A callable on a dataset that can be recorded and replayed.

    Attributes:
        path: Keys from the outermost dataset to the holder: attribute names, and positions in a list.
        attribute: Name of the callable on the holder.
        stage: Which stage its calls belong to; None where only its arguments can tell.
        chosen: Whether the user named it (`augment=`).
    """

    path: tuple[str | int, ...]
    attribute: str
    stage: CutStage | None
    chosen: bool = False

    @property
    def name(self) -> str:
        """The attribute path as a user would write it, such as `dataset.transform`."""
        text = ""
        for key in (*self.path, self.attribute):
            text += f"[{key}]" if isinstance(key, int) else f".{key}"
        return text.lstrip(".")


def resolve(dataset: Any, path: Iterable[str | int]) -> Any:
    """Follow a path of attribute names and list positions."""
    for key in path:
        dataset = dataset[key] if isinstance(key, int) else getattr(dataset, key)
    return dataset


def find_sites(dataset: Any, augment: str | Iterable[str] | None = None) -> tuple[CutSite, ...]:
    """Return the sites where a dataset could be cut, outermost dataset first.

    Args:
        dataset: The user's dataset.
        augment: Attribute path(s) that the user named as the augmentation, such as `"dataset.transform"`.

    Raises:
        PipelineError: If a path that the user named does not lead to a callable.
    """
    chosen = tuple(_chosen_sites(dataset, (augment,) if isinstance(augment, str) else tuple(augment or ())))
    found: list[CutSite] = []
    _search(dataset, (), found, set())
    taken = {(site.path, site.attribute) for site in chosen}
    others = (site for site in found if (site.path, site.attribute) not in taken)
    # Where the user says what the augmentation is, our own guesses of augmentations are not wanted.
    return chosen + tuple(site for site in others if not chosen or site.stage == "load")


def _chosen_sites(dataset: Any, names: Iterable[str]) -> Iterable[CutSite]:
    for name in names:
        path: list[str | int] = [
            int(key) if key.isdigit() else key for key in re.split(r"[.\[\]]+", name.strip("]")) if key
        ]
        try:
            target = resolve(dataset, path)
        except (AttributeError, IndexError, KeyError, TypeError):
            target = None
        if not path or isinstance(path[-1], int) or not callable(target):
            raise PipelineError(
                f"augment={name!r} does not lead to a callable on the dataset ({type(dataset).__name__}).",
                "Write the attribute path of the augmentation, such as augment='transform' or "
                "augment='dataset.transform'.",
            )
        yield CutSite(tuple(path[:-1]), str(path[-1]), "augment", chosen=True)


def _search(holder: Any, path: tuple[str | int, ...], found: list[CutSite], seen: set[int]) -> None:
    if id(holder) in seen or len(path) > _MAX_DEPTH:
        return
    seen.add(id(holder))
    state = getattr(holder, "__dict__", None)
    if not isinstance(state, dict):
        return
    called = _names_called(type(holder))
    for name, value in state.items():
        if isinstance(value, Dataset):
            _search(value, (*path, name), found, seen)
        elif isinstance(value, (list, tuple)) and 0 < len(value) <= MAX_MEMBERS:
            for position, member in enumerate(value):
                if isinstance(member, Dataset):
                    _search(member, (*path, name, position), found, seen)
        elif callable(value) and not isinstance(value, type):
            found.append(CutSite(path, name, _guess_stage(name, value)))
    for name in sorted(called - set(state)):
        method = _plain_method(type(holder), name)
        if method is not None:
            found.append(CutSite(path, name, _guess_stage(name, method)))


def _plain_method(cls: type, name: str) -> Any:
    """Return a method or function on a class that may be replaced on the instance, or None."""
    if name.startswith("__"):
        return None
    for base in cls.__mro__:
        if base in (object, Dataset, torch.utils.data.IterableDataset) or base.__module__ == "typing":
            return None
        if name in vars(base):
            raw = vars(base)[name]
            if isinstance(raw, (staticmethod, classmethod)):
                raw = raw.__func__
            return raw if isinstance(raw, FunctionType) else None
    return None


def _names_called(cls: type) -> set[str]:
    """Return the attribute names that a dataset's item methods mention, and the methods they call in turn."""
    names: set[str] = set()
    todo = ["__getitem__", "__getitems__", "__iter__", "__next__"]
    while todo:
        code = getattr(getattr(cls, todo.pop(), None), "__code__", None)
        if isinstance(code, CodeType):
            new = _code_names(code) - names
            names |= new
            todo.extend(name for name in new if _plain_method(cls, name) is not None)
    return names


def _code_names(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _code_names(constant)
    return names


def _guess_stage(name: str, value: Any) -> CutStage | None:
    if _AUGMENT_NAME.search(name):
        return "augment"
    if _LOAD_NAME.search(name):
        return "load"
    cls = value if isinstance(value, (FunctionType, MethodType)) else type(value)
    if str(getattr(cls, "__module__", "")).startswith(_AUGMENT_MODULES) or isinstance(value, torch.nn.Module):
        return "augment"
    return None
