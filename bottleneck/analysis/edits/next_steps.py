"""Next actions of a program with a result: edits as patches, commands that prove them, and the end."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from bottleneck.analysis.edits.edits import FIRST, changes_for, edit_of, is_fact, place_of, proof_of
from bottleneck.analysis.edits.patch import Read, patch
from bottleneck.results.records import Advice, Result

AnyResult = TypeVar("AnyResult", bound=Result)
Command = tuple[str, ...]

_MAX_PROOFS = 3
"""Pieces of advice whose proof is worth a command: the others come again with the next diagnosis."""
_PRINTED = ("--json", "-")


def with_next(result: AnyResult, again: Command, read: Read) -> AnyResult:
    """Return the result with the edit of each piece of advice, its proving command and the next commands.

    Args:
        result: A diagnosis.
        again: The command that made it, without its outputs, `bottleneck diagnose TARGET`; empty if none did.
        read: Reader of the user's source.
    """
    # A launcher starts the ranks. Options come before a script and its arguments.
    again = (*again[:2], *_PRINTED, *again[2:]) if again and not result.ranks else ()
    advice = tuple(item if is_fact(item) else _ready(result, item, again, read) for item in result.advice)
    state = result.verdict.state
    proven = (item.prove for item in advice if item.prove and (state == "input_bound" or item.id == FIRST))
    following = list(itertools.islice(proven, _MAX_PROOFS))
    if again and state == "input_bound" and not following and not {"--set", "--device"} & set(again):
        following.append((again[0], "tune", "--safe", *again[2:]))  # nothing is known of the cause: try what there is
    elif again and (state == "input_bound" or (state == "undecided" and not following)):
        following.append(again)
    return replace(result, advice=advice, next=tuple(dict.fromkeys(following)))


def _ready(result: Result, item: Advice, again: Command, read: Read) -> Advice:
    edit = edit_of(item, result.pipeline, result.evidence)
    place = edit.place if edit is not None and edit.place else place_of(item, result.evidence)
    made = patch(edit.parts, read) if edit is not None else ""
    return replace(item, patch=made or None, place=place or None, prove=again and _proof(result, item, again))


def _proof(result: Result, item: Advice, again: Command) -> Command:
    """Return the command that tests the advice: a tuning, a diagnosis with its settings, or one after the edit."""
    if item.id == FIRST:
        return (*again[:2], *shlex.split(item.how), *again[2:])
    tuning = proof_of(result, [item])
    if tuning and again[1] == "run":  # with the script's own arguments
        return (again[0], "tune", *(word for name in changes_for(result, item) for word in ("--try", name)), *again[2:])
    if tuning and not {"--set", "--device"} & set(again):  # a tuning is of the job as its function makes it
        return (*shlex.split(tuning), *_PRINTED)
    proposed = item.evidence.get("proposed")
    settings = proposed.items() if isinstance(proposed, Mapping) and again[1] == "diagnose" else ()
    given = (f"{name}={str(value).lower()}" for name, value in settings if isinstance(value, (bool, int)))
    return (*again, *(word for setting in given for word in ("--set", setting)))
