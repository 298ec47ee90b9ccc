"""Words about what belongs to the user, for messages: its own `__str__` or `__repr__` may fail."""

from __future__ import annotations


def quote(value: object) -> str:
    """The repr of a value; its class where that fails."""
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - a message about an object must not fail because of it
        return f"<{type(value).__name__} object>"


def describe(value: object) -> str:
    """The repr of a value where it is short; else its class."""
    shown = quote(value)
    return shown if len(shown) <= 40 and "\n" not in shown else f"a {type(value).__name__}"


def text_of(error: BaseException) -> str:
    """What an exception says; nothing where its `__str__` fails."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - as above
        return ""


def said_by(error: BaseException) -> str:
    """What an exception says, on one line; nothing where its `__str__` fails."""
    return " ".join(text_of(error).split())


def summary(error: BaseException) -> str:
    """Class and message of an exception on one line, without a full stop; a long message is cut."""
    text = said_by(error).rstrip(".")
    text = text if len(text) <= 300 else text[:297] + "..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
