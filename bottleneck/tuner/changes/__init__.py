"""The changes that come with `bottleneck`, as a table: those on the loader first, then the payload and the step."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from bottleneck.errors import UsageError
from bottleneck.tuner.change import Change
from bottleneck.tuner.changes import (
    batches,
    compiling,
    data,
    decoding,
    loader,
    on_device,
    payload,
    samples,
    step,
)

_PARTS = ("loader", "payload", "step")
_MODULES = (loader, samples, decoding, payload, data, batches, on_device, step, compiling)
BUILT_IN: tuple[Change, ...] = tuple(
    sorted((change for each in _MODULES for change in each.CHANGES), key=lambda change: _PARTS.index(change.on))
)


def choose(
    wanted: Sequence[str | Change] | None = None, left_out: Sequence[str] | None = None, *, safe: bool = False
) -> tuple[Change, ...]:
    """The changes to try.

    Args:
        wanted: Names of ours, and changes of the user's own; None: all of ours.
        left_out: Names not to try.
        safe: Leave out what alters numbers, of ours.

    Raises:
        UsageError: An unknown name, one that is there twice, none at all, or a name on its own, which is no list.
    """
    for name, given in (("try_", wanted), ("skip", left_out)):
        if isinstance(given, str | Change):
            raise UsageError(f"{name} must be a list, not {given!r}.", f"Write {name}=[{given!r}].")
    ours = {change.name: change for change in BUILT_IN}
    chosen = [each if isinstance(each, Change) else _named(each, ours) for each in (ours if wanted is None else wanted)]
    own = [change for change in chosen if ours.get(change.name) is not change]
    given_names = [change.name for change in chosen]
    if twice := next((name for name in given_names if given_names.count(name) > 1), None):
        raise UsageError(f"The change {twice!r} is there twice.", "Give each change a name of its own.")
    names = {_named(name, {**ours, **{change.name: change for change in own}}).name for name in left_out or ()}
    unsafe = [change for change in chosen if safe and change.alters == "numbers" and change not in own]
    kept = tuple(change for change in chosen if change.name not in names and change not in unsafe)
    if not kept:
        raise UsageError("No change is left to try.", "Leave out fewer of them.")
    return kept


def _named(name: object, known: dict[str, Change]) -> Change:
    if isinstance(name, str) and name in known:
        return known[name]
    near = difflib.get_close_matches(str(name).replace("-", "_"), known, n=1, cutoff=0.5)
    raise UsageError(
        f"There is no change {name!r}.", f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(known)}."
    )
