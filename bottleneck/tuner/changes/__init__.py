"""Table of the changes that come with `bottleneck`: those to the loader first, then payload and step."""

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
    handoff,
    loader,
    on_device,
    payload,
    samples,
    step,
)

_PARTS = ("loader", "payload", "step")
_MODULES = (loader, samples, decoding, payload, data, batches, handoff, on_device, step, compiling)
BUILT_IN: tuple[Change, ...] = tuple(
    sorted((change for each in _MODULES for change in each.CHANGES), key=lambda change: _PARTS.index(change.on))
)


def choose(
    wanted: Sequence[str | Change] | None = None, left_out: Sequence[str] | None = None, *, safe: bool = False
) -> tuple[Change, ...]:
    """Return the changes to try.

    Args:
        wanted: Names of built-in changes, and the user's own changes; None: all built-in ones.
        left_out: Names of changes not to try.
        safe: Leave out built-in changes that alter numbers.

    Raises:
        UsageError: A name is unknown, occurs twice, or is given instead of a list; or no change is left.
    """
    for name, given in (("try_", wanted), ("skip", left_out)):
        if isinstance(given, str | Change):
            raise UsageError(f"{name} must be a list, not {given!r}.", f"Write {name}=[{given!r}].")
    ours = {change.name: change for change in BUILT_IN}
    chosen = [each if isinstance(each, Change) else _named(each, ours) for each in (ours if wanted is None else wanted)]
    own = [change for change in chosen if ours.get(change.name) is not change]
    given_names = [change.name for change in chosen]
    if twice := next((name for name in given_names if given_names.count(name) > 1), None):
        raise UsageError(f"The change {twice!r} occurs twice.", "Give each change its own name.")
    names = {_named(name, {**ours, **{change.name: change for change in own}}).name for name in left_out or ()}
    unsafe = [change for change in chosen if safe and change.alters == "numbers" and change not in own]
    kept = tuple(change for change in chosen if change.name not in names and change not in unsafe)
    if not kept:
        raise UsageError("No change is left to try.", "Skip fewer of them.")
    return kept


def _named(name: object, known: dict[str, Change]) -> Change:
    if isinstance(name, str) and name in known:
        return known[name]
    near = difflib.get_close_matches(str(name).replace("-", "_"), known, n=1, cutoff=0.5)
    raise UsageError(
        f"There is no change {name!r}.", f"Did you mean {near[0]!r}?" if near else f"Known changes: {', '.join(known)}."
    )
