"""Job descriptions on the command line: the target that builds a job, values of its fields, durations and sizes.

Needs no torch until a target is loaded.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bottleneck.errors import BottleneckError, PipelineError, TargetError, UsageError, nearest
from bottleneck.job.users_code import describe, describe_error, quote

if TYPE_CHECKING:
    from bottleneck.job.pipeline import Pipeline

FORMS = "package.module:function or path/to/file.py:function"


def check_target(text: str) -> None:
    """Refuse a target that cannot be right, before anything is imported.

    Raises:
        TargetError: It names no function, or a file that does not exist.
    """
    where, _ = _split(text)
    if _names_file(where):
        _check_file(Path(where))


def build_pipeline(target: str) -> Pipeline:
    """Return the pipeline from the function of a target, 'package.module:function' or 'path/to/file.py:function'.

    Raises:
        TargetError: It cannot be loaded, called, or does not return a pipeline.
        PipelineError: Its result is not a valid description.
    """
    from bottleneck.job.pipeline import Pipeline  # torch

    function = load_target(target)
    _refuse_arguments(function, target)
    with _users_code(target):
        built = function()
    if isinstance(built, Pipeline):
        return built
    if isinstance(built, Mapping):
        return Pipeline.from_mapping(built)
    if inspect.iscoroutine(built):
        built.close()
    raise TargetError(
        f"{target} returned {describe(built)}, not a Pipeline or a mapping.",
        "End it with return Pipeline(dataset=..., model=..., ...) or Pipeline.from_loader(loader, model=model, ...).",
    )


def load_target(text: str) -> Callable[[], Any]:
    """Return the function that a target names, and make the working directory importable.

    Raises:
        TargetError: The form is unknown, nothing has that name, or it is not callable.
    """
    where, path = _split(text)
    _make_importable(os.getcwd())
    found: Any = _load_file(Path(where)) if _names_file(where) else _load_module(where)
    place = f"{where}:"
    for name in path.split("."):
        if not hasattr(found, name):
            raise _not_found(found, name, place)
        found, place = getattr(found, name), f"{place}{name}."
    if not callable(found):
        raise TargetError(
            f"{text} is {describe(found)}, not a function.",
            f"Name a function that returns a Pipeline, for example def build(): return {path}.",
        )
    return found  # type: ignore[no-any-return]  # any callable


def _split(text: str) -> tuple[str, str]:
    """Return the file or module of a target, and the function in it."""
    where, separator, path = text.rpartition(":")
    if not separator or not where or not path:
        name = where.strip(":") or path or "train.py"
        raise TargetError(f"{text!r} names no function.", f"Write {name}:build, in general {FORMS}.")
    return where, path


def _names_file(where: str) -> bool:
    return where.endswith(".py") or "/" in where or os.sep in where


def _check_file(path: Path) -> None:
    if os.path.isfile(path):  # unlike Path.is_file, treats a name that is too long as missing
        return
    problem = "is a folder, not a file" if os.path.isdir(path) else "does not exist"
    names: list[str] = []
    with suppress(OSError):  # a folder that cannot be read, or a name that is too long
        names = [entry.name for entry in path.parent.glob("*.py") if entry.is_file()]
    near = nearest(path.name, names)
    remedy = f"Did you mean {str(path.parent / near)!r}?" if near else f"Write {FORMS}, from the working directory."
    raise TargetError(f"The file {str(path)!r} {problem}.", remedy)


def _make_importable(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _load_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise TargetError(f"{name!r} is not the name of a module.", f"Write {FORMS}.")
    with _users_code(f"Importing {name}"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not f"{name}.".startswith(f"{error.name}."):  # another module, imported by this one
                raise
            here = [entry.stem for entry in Path.cwd().iterdir() if entry.suffix == ".py" or entry.is_dir()]
            near = nearest(name, here)
            remedy = "Run from the folder that contains it, or write path/to/file.py:function."
            if near and near != name:
                remedy = f"Did you mean {near!r}?"
            raise TargetError(f"There is no module {error.name!r}.", remedy) from error


def _load_file(path: Path) -> ModuleType:
    _check_file(path)
    file = path.resolve()
    root, name = _importable_name(file)
    _make_importable(str(root))
    with _users_code(f"Importing {path}"):
        if "." in name:  # inside a package, which relative imports need
            return importlib.import_module(name)
        loaded = sys.modules.get(name)
        if loaded is not None and getattr(loaded, "__file__", None) not in (str(file), str(path)):
            name = f"{name}_of_target"  # the name is taken, for example by the standard library
        return _execute(file, name)


def _importable_name(file: Path) -> tuple[Path, str]:
    """Return the folder to import from and the module's dotted name, inside the packages that contain it."""
    root, parts = file.parent, [file.stem]
    while (root / "__init__.py").is_file() and root.name.isidentifier():
        parts.insert(0, root.name)
        root = root.parent
    return root, ".".join(parts)


def _execute(file: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise TargetError(f"{str(file)!r} is not a Python file.", f"Write {FORMS}.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # so that spawned workers find its classes by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


@contextmanager
def _users_code(action: str) -> Iterator[None]:
    """Name the action if the user's code raises, on one line with the place in that code."""
    try:
        yield
    except (BottleneckError, KeyboardInterrupt):
        raise
    except BaseException as error:
        remedy = "Run with --traceback to see where."
        if isinstance(error, SystemExit):
            remedy = "Move code that parses arguments and exits under if __name__ == '__main__':."
        elif isinstance(error, ModuleNotFoundError):
            remedy = f"Install {error.name} in this environment, or run from the folder that contains it."
        raise TargetError(f"{action} raised {describe_error(error)}.", remedy) from error


def _not_found(owner: Any, name: str, place: str) -> TargetError:
    home = owner.__name__ if isinstance(owner, ModuleType) else getattr(owner, "__module__", None)
    held = {known: getattr(owner, known, None) for known in dir(owner) if not known.startswith("_")}
    # Without imported names such as Pipeline.
    own = [known for known, value in held.items() if callable(value) and getattr(value, "__module__", None) == home]
    near = nearest(name, own)
    remedy = f"Define it: def {name}(): return Pipeline(...)."
    if own:
        remedy = f"Did you mean {place}{near}?" if near else f"It has {', '.join(own[:6])}."
    return TargetError(f"{place[:-1]} has no {name!r}.", remedy)


def _refuse_arguments(function: Callable[..., Any], target: str) -> None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if needed:
        raise TargetError(
            f"{target} needs arguments: {', '.join(needed)}.",
            "Give them defaults, or name a function that has none and calls this one.",
        )


@dataclass(frozen=True)
class Field:
    """Valid values of a field of a pipeline.

    Attributes:
        wanted: Description in words.
        example: Python code, or a function that returns it for a given value.
        holds: Returns True if a value is valid.
        optional: True if it may be None.
    """

    wanted: str
    example: str | Callable[[Any], str]
    holds: Callable[[Any], bool]
    optional: bool = False


def _number(kind: Any, minimum: int, maximum: float = math.inf) -> Callable[[Any], bool]:
    # True would pass for 1; PyTorch requires an int.
    return lambda value: isinstance(value, kind) and not isinstance(value, bool) and minimum <= value <= maximum


def _flag_meant(value: Any) -> str:
    """Return the flag that is probably meant by another value, such as 0 or 'off'."""
    return str(quote(value).strip("'\"").lower() not in ("", "0", "0.0", "false", "np.false_", "no", "off", "none"))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


FLAGS = ("shuffle", "pin_memory", "drop_last", "persistent_workers", "in_order")
PLAIN_FIELDS = {
    "batch_size": Field("a whole number, 1 or more", "64", _number(int, 1), optional=True),
    # Beyond these limits PyTorch needs minutes to start processes or to fill a queue.
    "num_workers": Field("a whole number from 0 to 1024", "4", _number(int, 0, 1024)),
    "prefetch_factor": Field("a whole number from 1 to 65536", "2", _number(int, 1, 65536), optional=True),
    "timeout": Field("a number of seconds, 0 or more", "30", _number((int, float), 0)),
    **{
        name: Field("True or False", _flag_meant, lambda value: isinstance(value, bool), optional=name == "shuffle")
        for name in FLAGS
    },
}
"""DataLoader arguments that are numbers or flags."""
_TEXT_FIELDS = {
    "multiprocessing_context": Field("text", "spawn", _is_text, optional=True),
    "pin_memory_device": Field("text", "cuda", _is_text),
    "device": Field("text", "cuda:0", lambda value: _is_text(value) or _number(int, 0)(value), optional=True),
    "augment": Field(
        "text",
        "transform",
        lambda value: _is_text(value) or (isinstance(value, tuple) and all(map(_is_text, value))),
        optional=True,
    ),
}
_SETTABLE = {**PLAIN_FIELDS, **_TEXT_FIELDS}
_OBJECTS = (
    "dataset",
    "collate_fn",
    "model",
    "loss_fn",
    "optimizer",
    "train_step",
    "to_device",
    "sampler",
    "batch_sampler",
    "worker_init_fn",
    "generator",
)
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False, "none": None}


def check_field(name: str, value: Any, field: Field, *, option: str = "") -> None:
    """Refuse a value of a wrong type or range.

    Raises:
        PipelineError: Names the field and an example; a UsageError if an option is given.
    """
    if (value is None and field.optional) or field.holds(value):
        return
    shown = describe(value) if isinstance(value, int | str | None) else f"{describe(value)} ({type(value).__name__})"
    wanted = f"{field.wanted}, or None" if field.optional else field.wanted
    example = field.example if isinstance(field.example, str) else field.example(value)
    error = UsageError if option else PipelineError
    raise error(f"{option}{name} must be {wanted}, not {shown}.", f"Write {option}{name}={example}.")


def parse_settings(texts: Iterable[str]) -> dict[str, Any]:
    """Return pipeline fields from `KEY=VALUE` texts; the last one of a key counts.

    Values are numbers, true/false/yes/no/on/off, none, and Python literals; anything else is text.

    Returns:
        Arguments for `Pipeline.replace`.

    Raises:
        UsageError: Not of this form, an unknown key, or a value of the wrong type.
    """
    return dict(_parse_setting(text) for text in texts)


def _parse_setting(text: str) -> tuple[str, Any]:
    key, separator, value_text = text.partition("=")
    key, value = key.strip().replace("-", "_"), _parse_value(value_text.strip())
    if not separator or not key:
        raise UsageError(f"--set {text!r} is not KEY=VALUE.", "Write for example --set num_workers=8.")
    if key in _OBJECTS:
        if value is None and key not in ("dataset", "model"):
            return key, None
        raise UsageError(
            f"--set {key} cannot be given as text: it is a Python object.",
            "Change it in the function that builds the pipeline.",
        )
    if key not in _SETTABLE:
        near = nearest(key, _SETTABLE)
        remedy = f"Did you mean {near!r}?" if near else f"Known keys: {', '.join(_SETTABLE)}."
        raise UsageError(f"--set knows no {key!r}.", remedy)
    if key in FLAGS and value in (0, 1) and isinstance(value, int):
        value = bool(value)
    elif isinstance(value, list):
        value = tuple(value)
    check_field(key, value, _SETTABLE[key], option="--set ")
    return key, value


def _parse_value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


_UNIT_SECONDS = {"h": 3600.0, "m": 60.0, "min": 60.0, "s": 1.0, "ms": 0.001}
_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
_DURATION_PART = re.compile(rf"{_NUMBER}\s*(h|min|ms|m|s)", re.ASCII)


def parse_duration(value: str | float) -> float:
    """Return the seconds of a duration: '90s', '2m', '1m30s', '1.5h', '120' or a number of seconds.

    Raises:
        UsageError: Not a duration above 0.
    """
    seconds = math.nan
    if isinstance(value, str):
        text = value.strip().lower()
        parts = _DURATION_PART.findall(text)
        if re.fullmatch(_NUMBER, text, re.ASCII):
            seconds = float(text)
        elif parts and not _DURATION_PART.sub("", text).strip():
            seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value
    if not 0 < seconds <= sys.float_info.max:
        raise UsageError(
            f"{value!r} is not a duration above 0.", "Write for example 90s, 2m or 1m30s; a plain number is seconds."
        )
    return float(seconds)


MAX_BYTES = 2**53 - 1
_UNIT_BYTES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SIZE = re.compile(rf"{_NUMBER}\s*([a-z]*)", re.ASCII)


def parse_size(text: str) -> int:
    """Return the bytes of an amount of memory: '8GiB', '500MB', '1.5 GB' or '1000000'.

    Raises:
        UsageError: Not an amount of memory, or less than a byte.
    """
    found = _SIZE.fullmatch(text.strip().lower())
    nbytes = float(found[1]) * _UNIT_BYTES.get(found[2], 0) if found else 0.0
    if not 1 <= nbytes <= MAX_BYTES:
        raise UsageError(
            f"{text!r:.40} is not an amount of memory.", "Write for example 8GiB or 500MB; a plain number is bytes."
        )
    return int(nbytes)
