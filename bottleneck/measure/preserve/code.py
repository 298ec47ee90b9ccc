"""What a function's code says about the state it uses, and whose code it is."""

from __future__ import annotations

import dis
import sys
from functools import cache
from types import CodeType

from bottleneck.job.inspect import codes_in
from bottleneck.job.users_code import is_library


def assigned_globals(code: CodeType) -> set[str]:
    """The globals that code assigns or deletes."""
    return {
        str(instruction.argval)
        for each in codes_in(code)
        for instruction in dis.get_instructions(each)
        if instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")
    }


def top_package(value: object) -> str:
    """The top-level package in which an object's class, or a function, is defined."""
    module = getattr(value, "__module__", None) if callable(value) else None
    if not isinstance(module, str):
        module = type(value).__module__
    return module.partition(".")[0]


@cache
def is_installed(module_name: str) -> bool:
    """Whether a module belongs to Python or to an installed package, rather than to the user's own files.

    Args:
        module_name: The module's full name. One that is not imported, or built in, counts as installed, and
            `__main__` as the user's.
    """
    if module_name in ("__main__", "__mp_main__"):
        return False
    file = getattr(sys.modules.get(module_name), "__file__", None)
    return not file or is_library(file)
