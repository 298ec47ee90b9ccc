"""Which names some code uses, read from its bytes: nothing is run."""

from __future__ import annotations

from types import CodeType


def codes_in(code: CodeType) -> list[CodeType]:
    """A code object and those of the functions, lambdas and comprehensions inside it."""
    inner = [each for const in code.co_consts if isinstance(const, CodeType) for each in codes_in(const)]
    return [code, *inner]


def names_in(code: CodeType) -> set[str]:
    """The names that code looks up: its globals and the attributes it reads, which have the same table."""
    return {name for each in codes_in(code) for name in each.co_names}
