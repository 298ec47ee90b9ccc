"""Run only the part of a `__getitem__` that begins with the augmentation.

Where code follows the augmentation and code without a function of its own precedes it, no callable can be replayed
to skip the latter. So the source of `__getitem__` is cut in two at the statement that calls the augmentation, and
the second half is compiled to a function that starts from the recorded local variables.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType
from typing import Any

from torch.utils.data import ConcatDataset, Subset

from bottleneck.pipeline.cuts import CutSite, resolve

_LOCALS = "__recorded_locals__"
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True)
class Tail:
    """The second half of a dataset's `__getitem__`.

    Attributes:
        code: The code of the whole `__getitem__`, by which its frame is known.
        function: Takes the recorded local variables; returns what `__getitem__` would.
        self_name: The name of the dataset among them.
        names: The others that the second half needs.
    """

    code: CodeType
    function: Callable[[dict[str, Any]], Any]
    self_name: str
    names: tuple[str, ...]

    def capture(self, frame: FrameType | None, copy: Callable[[Any], Any]) -> dict[str, Any] | None:
        """Return the local variables of the `__getitem__` that a frame was called from; None if there is none.

        Args:
            frame: The innermost frame to look at.
            copy: Copies a value. The dataset and its attributes are not copied: they are no results of loading.
        """
        while frame is not None and frame.f_code is not self.code:
            frame = frame.f_back
        if frame is None:
            return None
        present = frame.f_locals
        dataset = present[self.self_name]
        attributes = {id(value) for value in getattr(dataset, "__dict__", {}).values()}
        found = {name: present[name] for name in self.names if name in present}
        copied = {name: value if id(value) in attributes else copy(value) for name, value in found.items()}
        return {self.self_name: dataset, **copied}


def make_tail(dataset: Any, sites: tuple[CutSite, ...]) -> Tail | None:
    """Cut a `__getitem__` at its first call of the augmentation.

    Args:
        dataset: The outermost dataset.
        sites: The sites of the augmentation; all on the same dataset.

    Returns:
        None where that cannot be done: no source, decorated, early returns, or wrappers that do work of their own.
    """
    paths = {site.path for site in sites}
    if len(paths) != 1:
        return None
    path = next(iter(paths))
    if not _only_passes_on(dataset, path):
        return None
    holder = resolve(dataset, path)
    original = getattr(type(holder), "__getitem__", None)
    if not isinstance(original, FunctionType) or getattr(type(holder), "__getitems__", None) is not None:
        return None
    try:
        return _cut(original, {site.attribute for site in sites})
    except (OSError, TypeError, SyntaxError, ValueError):
        return None


def _only_passes_on(dataset: Any, path: tuple[str | int, ...]) -> bool:
    """Whether the datasets around the holder hand on its items as they are."""
    for key in path:
        if not isinstance(dataset, list) and type(dataset) not in (Subset, ConcatDataset):
            return False
        dataset = resolve(dataset, (key,))
    return True


def _cut(original: FunctionType, attributes: set[str]) -> Tail | None:
    definition = ast.parse(textwrap.dedent(inspect.getsource(original))).body[0]
    if not isinstance(definition, ast.FunctionDef) or definition.decorator_list:
        return None
    arguments = definition.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
        return None
    parameters = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    calls = [_calls_on(statement, parameters[0], attributes) for statement in definition.body]
    at = next((number for number, found in enumerate(calls) if found), None)
    if at is None or any(_leaves_early(statement) for statement in definition.body[:at]):
        return None
    for found in calls[at:]:
        for call in found:
            call.args, call.keywords = [], []  # the recorded arguments are used
    needed = {
        node.id for statement in definition.body[at:] for node in ast.walk(statement) if isinstance(node, ast.Name)
    }
    bound = dict.fromkeys([*parameters[1:], *_bound_names(definition.body[:at])])
    names = tuple(name for name in bound if name in needed)
    function = _compile(original, definition, at, (parameters[0], *names))
    return Tail(original.__code__, function, parameters[0], names)


def _calls_on(statement: ast.stmt, self_name: str, attributes: set[str]) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(statement)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in attributes
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == self_name
    ]


def _leaves_early(statement: ast.stmt) -> bool:
    return any(isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom)) for node in _walk_own_scope(statement))


def _walk_own_scope(statement: ast.stmt) -> list[ast.AST]:
    found: list[ast.AST] = []
    stack: list[ast.AST] = [statement]
    while stack:
        node = stack.pop()
        found.append(node)
        if not isinstance(node, _SCOPES):
            stack.extend(ast.iter_child_nodes(node))
    return found


def _bound_names(statements: list[ast.stmt]) -> list[str]:
    names: list[str] = []
    for statement in statements:
        for node in _walk_own_scope(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.append(node.id)
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.append(node.name)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                names += [(alias.asname or alias.name).split(".")[0] for alias in node.names]
    return names


def _compile(
    original: FunctionType, definition: ast.FunctionDef, at: int, names: tuple[str, ...]
) -> Callable[[dict[str, Any]], Any]:
    """Compile the second half, with the globals and the closure of the original."""
    restore = [
        ast.parse(f"if {name!r} in {_LOCALS}: {name} = {_LOCALS}[{name!r}]").body[0] for name in names
    ]
    half = ast.FunctionDef(
        name=definition.name,
        args=ast.arguments(
            posonlyargs=[], args=[ast.arg(_LOCALS)], kwonlyargs=[], kw_defaults=[], defaults=[], vararg=None, kwarg=None
        ),
        body=[*restore, *definition.body[at:]],
        decorator_list=[],
        returns=None,
        type_params=[],
    )  # fmt: skip
    free = original.__code__.co_freevars
    outer = ast.parse(f"def factory({', '.join(free)}):\n    pass\n").body[0]
    assert isinstance(outer, ast.FunctionDef)  # noqa: S101 - narrows the type
    outer.body = [half, ast.Return(ast.Name(definition.name, ast.Load()))]
    module = ast.fix_missing_locations(ast.Module([outer], []))
    namespace: dict[str, Any] = {}
    exec(compile(module, original.__code__.co_filename, "exec"), namespace)  # noqa: S102 - the user's own source
    made = namespace["factory"](*(None for _ in free))
    cells = dict(zip(free, original.__closure__ or (), strict=True))
    closure = tuple(cells[name] for name in made.__code__.co_freevars)
    return FunctionType(made.__code__, original.__globals__, definition.name, None, closure)
