"""Options that several commands share, and how the texts of their values are understood."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

from bottleneck.errors import UsageError
from bottleneck.job.settings import parse_duration, parse_size

Function = TypeVar("Function", bound=Callable[..., Any])


def traceback_option(function: Function) -> Function:
    """Add `--traceback`; the boundary looks for it among the arguments itself."""
    option = click.option("--traceback", is_flag=True, expose_value=False, help="Show the traceback of an error.")
    return option(function)


def as_seconds(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """Callback of an option: seconds from '90s', '2m' or '1m30s'."""
    if text is None:
        return None
    try:
        return parse_duration(text)
    except UsageError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def as_bytes(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Callback of an option: bytes from '8GiB', '500MB' or '1000000'."""
    if text is None:
        return None
    try:
        return parse_size(text)
    except UsageError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def as_price(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """Callback of an option: the price of a GPU hour, a number above zero."""
    if text is None:
        return None
    from bottleneck.analysis.price import check_price

    try:
        return check_price(float(text))
    except (UsageError, ValueError):
        refusal = f"{text!r} is not a price above zero. Write for example 2.5."
        raise click.BadParameter(refusal, context, parameter) from None


def price_option(function: Function) -> Function:
    """Add `--gpu-hour-price`."""
    option = click.option(
        "--gpu-hour-price", callback=as_price, metavar="PRICE", help="Say what the lost part of a GPU hour costs."
    )
    return option(function)


def as_share(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """Callback of an option: a share over 0 and up to 1 from '0.9' or '90%'."""
    share = _parse_share(text)
    if share is None or 0 < share <= 1:
        return share
    raise click.BadParameter(
        f"{text!r} is not a share between 0 and 1. Write for example 0.9 or 90%.", context, parameter
    )


def as_loss(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """Callback of an option: a share from 0 to below 1 from '0.05' or '5%'."""
    share = _parse_share(text)
    if share is None or 0 <= share < 1:
        return share
    raise click.BadParameter(
        f"{text!r} is not a loss between 0 and 1. Write for example 0.05 or 5%.", context, parameter
    )


def _parse_share(text: str | None) -> float | None:
    """Return the number in a text, with or without a percent sign; NaN where there is none."""
    if text is None:
        return None
    stripped = text.strip()
    try:
        return float(stripped[:-1]) / 100 if stripped.endswith("%") else float(stripped)
    except ValueError:
        return math.nan
