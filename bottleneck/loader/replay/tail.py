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

from bottleneck.job.cuts import CutSite
from bottleneck.job.inspect import KeyPath, resolve
from bottleneck.loader import trees

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
        """Copy the local variables of the `__getitem__` that a frame was called from; None if there is none."""
        while frame is not None and frame.f_code is not self.code:
            frame = frame.f_back
        if frame is None:
            return None
        present = frame.f_locals
        names = (self.self_name, *self.names)
        return copy_locals({name: present[name] for name in names if name in present}, self.self_name, copy)

    def copies(self, local_variables: dict[str, Any]) -> list[Any]:
        """Return those of the recorded variables that take memory of their own."""
        own = _own_objects(local_variables[self.self_name])
        return [value for value in local_variables.values() if id(value) not in own]


def _own_objects(dataset: Any) -> set[int]:
    return {id(dataset), *(id(value) for value in getattr(dataset, "__dict__", {}).values())}


def copy_locals(
    local_variables: dict[str, Any], self_name: str, copy: Callable[[Any], Any] = trees.copy_deep
) -> dict[str, Any]:
    """Copy local variables; the dataset and its attributes, which may be large, stay the same objects."""
    own = _own_objects(local_variables[self_name])
    return {name: value if id(value) in own else copy(value) for name, value in local_variables.items()}


def make_tail(dataset: Any, sites: tuple[CutSite, ...]) -> Tail | None:
    """Cut a `__getitem__` at its first call of the augmentation, whose sites are all on one dataset.

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
        return _cut(original, {site.attribute for site in sites if isinstance(site.attribute, str)})
    except (OSError, TypeError, SyntaxError, ValueError):
        return None


def _only_passes_on(dataset: Any, path: KeyPath) -> bool:
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
    if not _begins_with_call(definition.body[at], {id(call) for call in calls[at]}):
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


def _begins_with_call(statement: ast.stmt, calls: set[int]) -> bool:
    """Whether no statement runs inside a statement before the one that calls the augmentation.

    It would run again with the second half, and loading would be taken for augmentation.
    """
    if isinstance(statement, ast.If):
        branches = [branch for branch in (statement.body, statement.orelse) if _contains(branch, calls)]
        return bool(branches) and all(_begins_with_call(branch[0], calls) for branch in branches)
    if isinstance(statement, ast.With):  # such as torch.no_grad()
        opens = any(item.optional_vars is not None for item in statement.items)
        return not opens and _begins_with_call(statement.body[0], calls)
    simple = isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr))
    return simple and _contains([statement], calls)


def _contains(statements: list[ast.stmt], calls: set[int]) -> bool:
    return any(id(node) in calls for statement in statements for node in ast.walk(statement))


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
    restore = [ast.parse(f"if {name!r} in {_LOCALS}: {name} = {_LOCALS}[{name!r}]").body[0] for name in names[1:]]
    half = ast.FunctionDef(
        name=definition.name,
        args=ast.arguments(
            posonlyargs=[], args=[ast.arg(names[0]), ast.arg(_LOCALS)], kwonlyargs=[], kw_defaults=[], defaults=[],
            vararg=None, kwarg=None,
        ),
        body=[*restore, *definition.body[at:]],
        decorator_list=[],
        returns=None,
    )  # fmt: skip
    if "type_params" in half._fields:  # Python 3.12 and later
        half.type_params = []  # type: ignore[attr-defined, unused-ignore]  # since 3.12
    free = original.__code__.co_freevars
    outer = ast.parse(f"def factory({', '.join(free)}):\n    pass\n").body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.body = [half, ast.Return(ast.Name(definition.name, ast.Load()))]
    module = ast.fix_missing_locations(ast.Module([outer], []))
    namespace: dict[str, Any] = {}
    exec(compile(module, original.__code__.co_filename, "exec"), namespace)
    made = namespace["factory"](*(None for _ in free))
    cells = dict(zip(free, original.__closure__ or (), strict=True))
    closure = tuple(cells[name] for name in made.__code__.co_freevars)
    second_half = FunctionType(made.__code__, original.__globals__, definition.name, None, closure)
    # The dataset is the first argument, where `super()` looks for it.
    return lambda found: second_half(found[names[0]], found)
