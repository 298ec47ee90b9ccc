"""Input lines of a loop, read from its source: their values reach the call of the model.

Stacks show which lines of a loop lead to a forward pass, a backward pass or an optimizer. Any other line that assigns
to names that the forward pass uses is input: `x, y = get_batch()`, `obs = env.step(action)`, the head of `for x, y in
batches`. Only names are followed, within one function and one loop.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_HEADS = (*_LOOPS, ast.If, ast.With, ast.AsyncWith)
_PUT_INTO = frozenset({"append", "appendleft", "extend", "add", "insert", "update", "push", "put", "store"})
"""Methods that put their arguments into their object, such as a list or a replay buffer."""
_COPIES = frozenset({"to", "cuda", "copy_"})


@dataclass
class Marks:
    """Lines of one file in the observed stacks."""

    forward: dict[int, bool] = field(default_factory=dict)
    """Lines that led to the call of a model, with True if a loop in an outer function led there."""
    other: set[int] = field(default_factory=set)
    """Lines that led to a backward pass or an optimizer."""
    loads: set[int] = field(default_factory=set)
    """Lines that led to a DataLoader."""


@dataclass(frozen=True)
class Edit:
    """A change of the source with which a loop without a DataLoader can be measured."""

    line: int
    before: str
    after: str
    above: str = ""
    """A line in front of the loop; empty if not needed."""


class Source:
    """A file of the user's code.

    Args:
        text: Content of the file.

    Raises:
        SyntaxError, ValueError: The text is not Python of this version.
    """

    def __init__(self, text: str) -> None:
        self._tree = ast.parse(text)
        self._source, self._lines = text, text.splitlines()
        self._owners: dict[ast.AST, ast.AST] = {}
        for node in ast.walk(self._tree):
            for child in ast.iter_child_nodes(node):
                self._owners[child] = node

    # --- the place of a line -----------------------------------------------------------------------------------

    def statement_at(self, line: int) -> ast.stmt | None:
        """Return the innermost statement at a line; a statement with a body counts only with its head."""
        found = None
        for node in ast.walk(self._tree):
            if isinstance(node, ast.stmt) and node.lineno <= line <= _end(node):
                found = node if found is None or node.lineno >= found.lineno else found
        return found

    def is_in_loop(self, line: int) -> bool:
        """Return True if a line is in a loop of its function."""
        statement = self.statement_at(line)
        return statement is not None and self._loop_around(statement) is not None

    def _loop_around(self, statement: ast.stmt) -> ast.stmt | None:
        """Return the outermost loop of the function that contains a statement, or begins with it."""
        found: ast.stmt | None = statement if isinstance(statement, _LOOPS) else None
        for node in self._around(statement):
            if isinstance(node, Function):
                break
            if isinstance(node, _LOOPS):
                found = node
        return found

    def _around(self, node: ast.AST) -> Iterator[ast.AST]:
        while (owner := self._owners.get(node)) is not None:
            yield owner
            node = owner

    def _region(self, statement: ast.stmt, *, in_loop: bool) -> ast.AST | None:
        loop = self._loop_around(statement)
        if loop is not None or not in_loop:
            return loop
        return next((node for node in self._around(statement) if isinstance(node, Function)), None)

    # --- the lines that make the input ---------------------------------------------------------------------------

    def input_lines(self, marks: Marks) -> dict[int, bool]:
        """Return the lines that make the input of the forward passes, with True if they use the output of a model.

        Lines that use it are input only if they run code outside of PyTorch: `obs = env.step(action)` is input,
        `x = x.flatten(1)` is not.
        """
        if not marks.forward and not marks.other:
            return dict.fromkeys(self._lines_after_loading(marks), False)
        marked = {at for line in {*marks.forward, *marks.other} if (at := self.statement_at(line)) is not None}
        regions: dict[ast.AST, set[str]] = {}
        for line, in_loop in marks.forward.items():
            seed = self.statement_at(line)
            region = None if seed is None else self._region(seed, in_loop=in_loop)
            if seed is not None and region is not None:
                regions.setdefault(region, set()).update(_loaded(_value(seed)))
        found = {} if marks.forward else dict.fromkeys(self._lines_after_loading(marks), False)
        for region, names in regions.items():
            found |= _slice(region, names, marked)
        for region, names in self._without_forward(marks, regions).items():
            # The unknown line that calls the model is among these.
            found = dict.fromkeys(_slice(region, names, marked), True) | found
        return found

    def _without_forward(self, marks: Marks, regions: Collection[ast.AST]) -> dict[ast.AST, set[str]]:
        """Return loops without an observed call of a model, such as a fast one, and the names that they learn from."""
        found: dict[ast.AST, set[str]] = {}
        for line in marks.other:
            statement = self.statement_at(line)
            region = None if statement is None else self._loop_around(statement)
            if statement is not None and region is not None and region not in regions:
                found.setdefault(region, set()).update(_loaded(_value(statement)))
        return found

    def _lines_after_loading(self, marks: Marks) -> frozenset[int]:
        """Return lines that change a batch of a DataLoader, for loops without an observed call of a model."""
        found: set[int] = set()
        for line in marks.loads:
            statement = self.statement_at(line)
            loop = None if statement is None else self._loop_around(statement)
            if statement is None or loop is None:
                continue
            names = set(_assigned(statement))
            for at in _within(loop):
                value, assigned = _value(at), _assigned(at)
                if at is statement or not assigned or not _meet(names, _loaded(value)):
                    continue
                if assigned <= names:
                    found.update(range(at.lineno, _end(at) + 1))
                elif not any(isinstance(node, ast.Call) for part in value for node in ast.walk(part)):
                    names |= assigned  # it takes the batch apart
        return frozenset(found)

    def copies(self, line: int) -> bool:
        """Return True if a line moves tensors, which on an accelerator waits for its earlier work."""
        statement = self.statement_at(line)
        calls = (node for part in _head(statement) for node in ast.walk(part)) if statement is not None else ()
        return any(
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _COPIES
            for node in calls
        )

    # --- the edit before a measurement -----------------------------------------------------------------------------

    def edit_at(self, line: int) -> Edit | None:
        """Return the edit that wraps the source of a line's batches; None if that depends on the loop."""
        statement = self.statement_at(line)
        loop = None if statement is None else self._loop_around(statement)
        if statement is None or loop is None:
            return None
        before = self._text(statement)
        if isinstance(statement, ast.For):
            iterated = statement.iter
            if _called_name(iterated) == "enumerate" and isinstance(iterated, ast.Call) and iterated.args:
                iterated = iterated.args[0]
            wrapped = self._segment(iterated)
            return Edit(line, before, before.replace(wrapped, f"bottleneck.watch({wrapped})", 1))
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            return None
        call = statement.value
        if _called_name(call) == "next" and len(call.args) == 1 and isinstance(call.args[0], ast.Name):
            name = call.args[0].id
            return Edit(line, before, before, f"{name} = bottleneck.watch({name})")
        changing = {name for at in _within(loop) for name in _assigned(at)}
        if _meet(changing, _loaded([call])):
            return None
        made = self._segment(call)
        makes = f"lambda: {made}" if call.args or call.keywords else self._segment(call.func)
        return Edit(line, before, before.replace(made, "next(batches)", 1), f"batches = bottleneck.watch({makes})")

    def _text(self, statement: ast.stmt) -> str:
        return _on_one_line(self._lines[statement.lineno - 1 : _end(statement)])

    def _segment(self, node: ast.expr) -> str:
        return _on_one_line((ast.get_source_segment(self._source, node) or "").splitlines())


def _on_one_line(lines: Iterable[str]) -> str:
    return " ".join(line.strip() for line in lines)


def _slice(region: ast.AST, names: set[str], marked: Collection[ast.stmt]) -> dict[int, bool]:
    """Return the lines of a region that compute some names, with True if they use values of marked statements."""
    statements = list(_within(region))
    given = {name for at in statements if at in marked for name in _assigned(at)}
    while more := {name for at in statements if _meet(given, _loaded(_value(at))) for name in _assigned(at)} - given:
        given |= more
    taken: set[ast.stmt] = set()
    while more_taken := {
        at for at in statements if at not in taken and at not in marked and _meet(_assigned(at), names)
    }:
        taken |= more_taken
        names = names.union(*(_loaded(_value(at)) for at in more_taken))
    return {line: _meet(given, _loaded(_value(at))) for at in taken for line in range(at.lineno, _end(at) + 1)}


def parsed(texts: Mapping[str, str]) -> dict[str, Source]:
    """Return the files that can be parsed as Python."""
    found = {}
    for file, text in texts.items():
        try:
            found[file] = Source(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
    return found


def _end(statement: ast.stmt) -> int:
    """Return the last line of a statement; for one with a body, the last line of its head."""
    if isinstance(statement, (*_HEADS, Function, ast.ClassDef, ast.Try)):
        body = statement.body[0]
        return max(statement.lineno, min(_first_line(body) - 1, statement.end_lineno or statement.lineno))
    return statement.end_lineno or statement.lineno


def _first_line(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(one.lineno for one in decorators)])


def _head(statement: ast.stmt) -> list[ast.expr]:
    """Return the expressions of a statement without its body."""
    return [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.expr)] + [
        item.context_expr for item in getattr(statement, "items", [])
    ]


def _within(region: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a region, including the region itself, without those of functions defined in it."""
    if isinstance(region, ast.stmt) and not isinstance(region, (Function, ast.ClassDef)):
        yield region
    for child in ast.iter_child_nodes(region):
        if not isinstance(child, (Function, ast.ClassDef, ast.Lambda)):
            yield from _within(child)


def _targets(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return list(statement.targets)
    if isinstance(statement, (ast.AugAssign, ast.AnnAssign, ast.For, ast.AsyncFor)):
        return [statement.target]
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return [item.optional_vars for item in statement.items if item.optional_vars is not None]
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _PUT_INTO:
        return [call.func.value]
    return []


def _assigned(statement: ast.stmt) -> set[str]:
    """Return the names to which a statement assigns, or into which it puts values, such as `batch` and `self.rows`."""
    targets, found = _targets(statement), set()
    while targets:
        target = targets.pop()
        targets += [*getattr(target, "elts", []), *([target.value] if isinstance(target, ast.Starred) else [])]
        found |= {_path(target)}
    return found - {""}


def _value(statement: ast.stmt) -> list[ast.expr]:
    """Return the expressions from which a statement computes its values."""
    targets = {id(target) for target in _targets(statement)}
    return [part for part in _head(statement) if id(part) not in targets]


def _loaded(parts: Iterable[ast.AST]) -> set[str]:
    """Return the names that expressions read, with their attributes."""
    found: set[str] = set()
    for part in parts:
        path = _path(part)
        found |= {path} - {""} if path else _loaded(ast.iter_child_nodes(part))
        if isinstance(part, ast.Subscript):
            found |= _loaded([part.slice])
    return found


def _path(node: ast.AST) -> str:
    """Return a name, possibly with attributes, without any subscripts; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Subscript):
        return _path(node.value)
    if isinstance(node, ast.Attribute):
        inner = _path(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return ""


def _meet(assigned: Collection[str], loaded: Collection[str]) -> bool:
    """Return True if any assigned name is read, as a whole or in part."""
    return any(
        name == read or read.startswith(f"{name}.") or (read != "self" and name.startswith(f"{read}."))
        for name in assigned
        for read in loaded
    )


def _called_name(call: ast.expr) -> str:
    return call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""
