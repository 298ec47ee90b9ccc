"""The changes that come with `bottleneck`, as a table: those on the loader first, then the payload and the step."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from bottleneck.errors import UsageError
from bottleneck.tuner.change import Change
from bottleneck.tuner.changes import compiling, data, loader, payload, samples, step

_PARTS = ("loader", "payload", "step")
BUILT_IN: tuple[Change, ...] = tuple(
    sorted(
        (*loader.CHANGES, *samples.CHANGES, *payload.CHANGES, *data.CHANGES, *step.CHANGES, *compiling.CHANGES),
        key=lambda change: _PARTS.index(change.on),
    )
)


def choose(
    wanted: Sequence[str | Change] | None = None, left_out: Sequence[str] = (), *, safe: bool = False
) -> tuple[Change, ...]:
    """The changes to try.

    Args:
        wanted: Names of ours, and changes of the user's own; None: all of ours.
        left_out: Names not to try.
        safe: Leave out what alters numbers, of ours.

    Raises:
        UsageError: An unknown name, one that is there twice, or none at all.
    """
    ours = {change.name: change for change in BUILT_IN}
    chosen = [each if isinstance(each, Change) else _named(each, ours) for each in (ours if wanted is None else wanted)]
    own = [change for change in chosen if ours.get(change.name) is not change]
    _refuse_twice([change.name for change in chosen])
    names = {_named(name, {**ours, **{change.name: change for change in own}}).name for name in left_out}
    kept = tuple(
        change for change in chosen if change.name not in names and (change in own or not safe or _is_safe(change))
    )
    if not kept:
        raise UsageError("No change is left to try.", "Leave out fewer of them.")
    return kept


def _is_safe(change: Change) -> bool:
    return change.alters != "numbers"


def _named(name: object, known: dict[str, Change]) -> Change:
    if isinstance(name, str) and name in known:
        return known[name]
    near = difflib.get_close_matches(str(name).replace("-", "_"), known, n=1, cutoff=0.5)
    raise UsageError(
        f"There is no change {name!r}.", f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(known)}."
    )


def _refuse_twice(names: Sequence[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"The change {twice!r} is there twice.", "Give each change a name of its own.")
