"""From the text of a target to the pipeline that its function builds, with the user's own failures named.

Needs torch only once the function is called.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bottleneck.errors import BottleneckError, TargetError
from bottleneck.job.users_code import is_users, summary

if TYPE_CHECKING:
    from bottleneck.job.pipeline import Pipeline

FORMS = "package.module:function or path/to/file.py:function"


def check_target(text: str) -> None:
    """Refuse a target that cannot be right, before anything is imported.

    Raises:
        TargetError: It names no function, or a file that is not there.
    """
    where, _ = split_target(text)
    if names_file(where):
        check_file(Path(where))


def split_target(text: str) -> tuple[str, str]:
    """The file or module of a target, and the function in it.

    Raises:
        TargetError: One of them is missing.
    """
    where, separator, path = text.rpartition(":")
    if not separator or not where or not path:
        name = where.strip(":") or path or "train.py"
        raise TargetError(f"{text!r} names no function.", f"Write {name}:build, in general {FORMS}.")
    return where, path


def names_file(where: str) -> bool:
    """Whether this is a file rather than a module."""
    return where.endswith(".py") or "/" in where or os.sep in where


def check_file(path: Path) -> None:
    """Refuse what is no file.

    Raises:
        TargetError: With a name that is near.
    """
    if os.path.isfile(path):  # which takes a name that is too long for one that is not there
        return
    if os.path.isdir(path):
        raise TargetError(f"{str(path)!r} is a folder, not a file.", f"Write {FORMS}.")
    raise TargetError(f"There is no file {str(path)!r}.", _file_remedy(path))


def _file_remedy(path: Path) -> str:
    folder = path.parent
    names = [entry.name for entry in folder.glob("*.py") if entry.is_file()] if os.path.isdir(folder) else []
    near = difflib.get_close_matches(path.name, names, n=1, cutoff=0.6)
    if near:
        return f"Did you mean {str(folder / near[0])!r}?"
    return f"Paths are relative to the working directory; write {FORMS}."


def build_pipeline(target: str) -> Pipeline:
    """The pipeline that the function of a target returns: 'package.module:function' or 'path/to/file.py:function'.

    Raises:
        TargetError: It cannot be loaded, called, or does not return a pipeline.
        PipelineError: What it returns is not a possible description.
    """
    function = load_target(target)
    _refuse_arguments(function, target)
    try:
        built = function()
    except (BottleneckError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise TargetError(f"{target} raised {describe_error(error)}.", _remedy_for(error)) from error
    return _as_pipeline(built, target)


def load_target(text: str) -> Callable[[], Any]:
    """The function that a target names; the working directory is importable from here on.

    Raises:
        TargetError: Not of a known form, nothing there, or not callable.
    """
    where, path = split_target(text)
    _make_importable(os.getcwd())
    module = _load_file(Path(where)) if names_file(where) else _load_module(where)
    found: Any = module
    place = f"{where}:"
    for name in path.split("."):
        if not hasattr(found, name):
            raise _not_found(found, name, place)
        found, place = getattr(found, name), f"{place}{name}."
    if not callable(found):
        from bottleneck.job.pipeline import Pipeline

        kind = type(found).__name__
        raise TargetError(
            f"{text} is {_with_article(kind)}, not a function.",
            f"Write a function that returns it: def build(): return {path}."
            if isinstance(found, Pipeline | Mapping)
            else "Name a function that returns a Pipeline.",
        )
    return found  # type: ignore[no-any-return]  # whatever the name stands for


def _make_importable(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _load_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise TargetError(f"{name!r} is not the name of a module.", f"Write {FORMS}.")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name != missing and not name.startswith(missing + "."):
            raise _import_failed(name, error) from error
        raise TargetError(f"There is no module {missing!r}.", _module_remedy(name)) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _import_failed(name, error) from error


def _module_remedy(name: str) -> str:
    first = name.split(".", maxsplit=1)[0]
    here = [entry.stem for entry in Path.cwd().iterdir() if entry.suffix == ".py" or entry.is_dir()]
    near = difflib.get_close_matches(first, here, n=1, cutoff=0.6)
    if near and near[0] != first:
        return f"Did you mean {near[0]!r}?"
    return "Run from the folder that contains it, or write path/to/file.py:function."


def _load_file(path: Path) -> ModuleType:
    check_file(path)
    root, name = _importable_name(path.resolve())
    _make_importable(str(root))
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) not in (str(path.resolve()), str(path)):
        name = f"{name}_of_target"  # the name is taken, for example by the standard library
    try:
        if "." in name:  # inside a package, for the sake of its relative imports
            return importlib.import_module(name)
        return _execute(path.resolve(), name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _import_failed(str(path), error) from error


def _importable_name(path: Path) -> tuple[Path, str]:
    """The folder to import from and the module's dotted name, inside the packages that contain it."""
    root, parts = path.parent, [path.stem]
    while (root / "__init__.py").is_file() and root.name.isidentifier():
        parts.insert(0, root.name)
        root = root.parent
    return root, ".".join(parts)


def _execute(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{str(path)!r} is not a Python file.", f"Write {FORMS}.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # so that workers that are spawned find the classes in it by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _import_failed(name: str, error: BaseException) -> BottleneckError:
    if isinstance(error, BottleneckError):
        return error
    return TargetError(f"Importing {name} raised {describe_error(error)}.", _remedy_for(error))


def _not_found(owner: Any, name: str, place: str) -> TargetError:
    names = [n for n in dir(owner) if not n.startswith("_") and callable(getattr(owner, n, None))]
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    own = [n for n in names if getattr(getattr(owner, n), "__module__", None) == getattr(owner, "__name__", "")]
    own.sort(key=lambda name: isinstance(getattr(owner, name), type))  # functions first
    if near:
        remedy = f"Did you mean {place}{near[0]}?"
    elif own:
        remedy = f"It has {', '.join(own[:6])}."
    else:
        remedy = f"Define it: def {name}(): return Pipeline(...)."
    return TargetError(f"{place[:-1]} has no {name!r}.", remedy)


def _with_article(noun: str) -> str:
    return f"{'an' if noun[:1] in 'aeiouAEIOU' else 'a'} {noun}"


def _refuse_arguments(function: Callable[..., Any], target: str) -> None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if needed:
        name = getattr(function, "__name__", "build")
        raise TargetError(
            f"{target} needs arguments: {', '.join(needed)}.",
            f"Give them defaults, or add a function without any: def build_default(): return {name}({needed[0]}=...).",
        )


def _as_pipeline(built: Any, target: str) -> Pipeline:
    from torch.utils.data import DataLoader

    from bottleneck.job.pipeline import Pipeline

    if isinstance(built, Pipeline):
        return built
    if isinstance(built, Mapping):
        return Pipeline.from_mapping(built)
    remedy = "End it with return Pipeline(dataset=..., model=..., ...)."
    if isinstance(built, DataLoader):
        remedy = "End it with return Pipeline.from_loader(loader, model=model, ...)."
    if inspect.iscoroutine(built):
        built.close()
        remedy = "Write it with def, not with async def."
    shown = "None" if built is None else _with_article(type(built).__name__)
    raise TargetError(f"{target} returned {shown}, not a Pipeline or a mapping.", remedy)


def describe_error(error: BaseException) -> str:
    """An exception of the user's on one line, with the place in their code that raised it."""
    shown = summary(error)
    if isinstance(error, SyntaxError):  # names file and line itself
        return shown
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_users(f.filename)]
    return f"{shown} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else shown


def _remedy_for(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "Keep what parses arguments and exits under if __name__ == '__main__':."
    if isinstance(error, ModuleNotFoundError):
        return f"Install {error.name} in this environment, or run from the folder that contains it."
    return "Run with --traceback to see where."
