"""One value of a parsed JSON document, read with its type checked and its place known.

A saved result comes from anywhere, also from a later version or an editor; what is wrong with it is said in
one sentence that names the key.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from bottleneck.errors import ResultFileError

Item = TypeVar("Item")

MAX_DEPTH = 64
"""Free-form parts (environment, evidence) may be nested this deep; far beyond what is ever written."""

MAX_COUNT = 2**53
"""The largest whole number up to which JSON readers agree; statistics calculate with floats."""

REMEDY = "Write the result again with `bottleneck diagnose TARGET --json FILE`."

_KINDS = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "true or false",
    int: "a number",
    float: "a number",
    type(None): "null",
}


@dataclass(frozen=True)
class Node:
    """A value of a JSON document.

    Attributes:
        value: The value, as `json.loads` made it.
        path: Where it stands, such as 'experiments[2].coupled'; empty for the whole document.
        source: The name of the document, for messages.
    """

    value: Any
    path: str
    source: str

    def fail(self, wanted: str) -> NoReturn:
        """Refuse the value.

        Raises:
            ResultFileError: Always; says what was wanted in its place.
        """
        place = self.path or "the whole document"
        found = _KINDS.get(type(self.value), "something else")
        raise ResultFileError(f"{self.source} is not a valid result: {place} must be {wanted}, not {found}.", REMEDY)

    def key(self, name: str) -> Node:
        """The value of a key that must be there. Keys that nobody asks for are ignored."""
        if not isinstance(self.value, dict):
            self.fail("an object")
        path = f"{self.path}.{name}" if self.path else name
        if name not in self.value:
            raise ResultFileError(f"{self.source} is not a valid result: {path} is missing.", REMEDY)
        return Node(self.value[name], path, self.source)

    def optional_key(self, name: str) -> Node:
        """The value of a key; null when the key is not there."""
        if isinstance(self.value, dict) and name not in self.value:
            return Node(None, f"{self.path}.{name}", self.source)
        return self.key(name)

    def items(self, read: Callable[[Node], Item]) -> tuple[Item, ...]:
        """Every item of a list, read by `read`."""
        if not isinstance(self.value, list):
            self.fail("a list")
        return tuple(read(Node(item, f"{self.path}[{index}]", self.source)) for index, item in enumerate(self.value))

    def maybe(self, read: Callable[[Node], Item]) -> Item | None:
        """None for null, else what `read` makes of it."""
        return None if self.value is None else read(self)

    def text(self) -> str:
        """A string."""
        if not isinstance(self.value, str):
            self.fail("a string")
        return self.value

    def choice(self, *choices: str) -> str:
        """One of a few strings."""
        if self.value not in choices or not isinstance(self.value, str):
            wanted = ", ".join(repr(choice) for choice in choices)
            shown = repr(self.value)[:40] if isinstance(self.value, str) else None
            if shown is None:
                self.fail(f"one of {wanted}")
            raise ResultFileError(
                f"{self.source} is not a valid result: {self.path} must be one of {wanted}, not {shown}.",
                "Update torch-bottleneck if a later version wrote it, or write the result again.",
            )
        return self.value

    def flag(self) -> bool:
        """True or false."""
        if not isinstance(self.value, bool):
            self.fail("true or false")
        return self.value

    def number(self) -> float:
        """A finite number, as a float."""
        # JSON's true and false are ints to Python; an int may be too large for a float.
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            self.fail("a number")
        try:
            number = float(self.value)
        except OverflowError:
            self.fail("a finite number")
        if not math.isfinite(number):
            self.fail("a finite number")
        return number

    def amount(self) -> float:
        """A finite number that is not negative."""
        number = self.number()
        if number < 0:
            self.fail("zero or more")
        return number

    def count(self) -> int:
        """A whole number that is not negative, and that a float holds exactly."""
        if isinstance(self.value, bool) or not isinstance(self.value, int) or self.value < 0:
            self.fail("a whole number of zero or more")
        if self.value > MAX_COUNT:
            self.fail(f"a whole number of at most {MAX_COUNT}")
        return self.value

    def mapping(self) -> dict[str, Any]:
        """An object with any content, nested no deeper than `MAX_DEPTH`."""
        if not isinstance(self.value, dict):
            self.fail("an object")
        self._check_depth()
        return self.value

    def _check_depth(self) -> None:
        level: list[Any] = [self.value]
        for _ in range(MAX_DEPTH):
            below: list[Any] = []
            for value in level:
                if isinstance(value, dict):
                    below.extend(value.values())
                elif isinstance(value, list):
                    below.extend(value)
            if not below:
                return
            level = below
        raise ResultFileError(f"{self.source} is not a valid result: {self.path} is nested too deep.", REMEDY)
