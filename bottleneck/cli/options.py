"""Options that several commands share, and how the texts of their values are understood."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from bottleneck.errors import UsageError
from bottleneck.job.target import parse_duration, parse_size

Function = TypeVar("Function", bound=Callable[..., Any])
Value = TypeVar("Value")
Callback = Callable[[click.Context, click.Parameter, str | None], Value | None]


_TRACEBACK = "bottleneck.traceback"


def _parsed_by(parse: Callable[[str], Value]) -> Callback[Value]:
    """Return the callback of an option whose text is understood by a function that raises UsageError."""

    def callback(context: click.Context, parameter: click.Parameter, text: str | None) -> Value | None:
        if text is None:
            return None
        try:
            return parse(text)
        except UsageError as error:
            raise click.BadParameter(str(error), context, parameter) from error

    return callback


def _parse_price(text: str) -> float:
    from bottleneck.analysis.price import check_price

    try:
        return check_price(float(text))
    except (UsageError, ValueError):
        raise UsageError(f"{text!r} is not a price above zero.", "Write for example 2.5.") from None


def _parse_share(text: str) -> float:
    share = _parse_number(text)
    if not 0 < share <= 1:
        raise UsageError(f"{text!r} is not a share between 0 and 1.", "Write for example 0.9 or 90%.")
    return share


def _parse_loss(text: str) -> float:
    loss = _parse_number(text)
    if not 0 <= loss < 1:
        raise UsageError(f"{text!r} is not a loss between 0 and 1.", "Write for example 0.05 or 5%.")
    return loss


def _parse_number(text: str) -> float:
    """Return the number in a text, with or without a percent sign; NaN where there is none."""
    stripped = text.strip()
    try:
        return float(stripped[:-1]) / 100 if stripped.endswith("%") else float(stripped)
    except ValueError:
        return math.nan


as_seconds = _parsed_by(parse_duration)
"""From '90s', '2m' or '1m30s'."""
as_bytes = _parsed_by(parse_size)
"""From '8GiB', '500MB' or '1000000'."""
as_share = _parsed_by(_parse_share)
"""Over 0 and up to 1, from '0.9' or '90%'."""
as_loss = _parsed_by(_parse_loss)
"""From 0 to below 1, from '0.05' or '5%'."""


def as_names(_context: click.Context, _parameter: click.Parameter, texts: Sequence[str]) -> tuple[str, ...]:
    """Names, each text of which may have several with commas between.

    Raises:
        click.BadParameter: There are none in what was given.
    """
    names = tuple(name.strip() for text in texts for name in text.split(",") if name.strip())
    if texts and not names:
        raise click.BadParameter("there is no name in it.")
    return names


def traceback_option(function: Function) -> Function:
    """Add `--traceback`; the boundary looks for it among the arguments itself."""

    def remember(context: click.Context, _: click.Parameter, asked: bool) -> None:
        context.meta[_TRACEBACK] = asked or context.meta.get(_TRACEBACK, False)

    option = click.option(
        "--traceback", is_flag=True, expose_value=False, callback=remember, help="Show all of an error's traceback."
    )
    return option(function)


def traceback_is_asked_for() -> bool:
    """Whether the present command has `--traceback`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_TRACEBACK))


def verbose_option(function: Function) -> Function:
    """Add `--verbose`."""
    option = click.option("--verbose", is_flag=True, help="Print all tables, and the intervals of all numbers.")
    return option(function)


def price_option(function: Function) -> Function:
    """Add `--gpu-hour-price`."""
    option = click.option(
        "--gpu-hour-price",
        callback=_parsed_by(_parse_price),
        metavar="PRICE",
        help="Report what waiting costs per GPU hour, such as 2.5.",
    )
    return option(function)
