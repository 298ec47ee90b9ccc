"""Names of stages, and of spans in which several could not be told apart: `handoff+collate`."""

from __future__ import annotations

from collections.abc import Collection, Iterable

FETCH = "fetch"
_INNERMOST = ("handoff", "collate")
"""What a joint span begins with; another name with a plus sign is one that the user chose."""


def joint_name(stages: Iterable[str]) -> str:
    """Return the name of a span that cannot be split: those of all its stages, from the device outwards."""
    return "+".join(stages)


def stages_in(span: str) -> tuple[str, ...]:
    """Return the stages of a span; one, unless they could not be told apart."""
    stages = tuple(span.split("+"))
    return stages if stages[0] in _INNERMOST else (span,)


def span_of(stage: str, spans: Collection[str]) -> str:
    """Return the span that a stage's work is part of; `fetch` stands for what is not measured apart in a sample."""
    for wanted in (stage, FETCH):
        found = next((span for span in spans if wanted == span or wanted in stages_in(span)), None)
        if found is not None:
            return found
    return stage
