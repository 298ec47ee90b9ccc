"""The documents: which sections a result has in each format, and in which order.

A terminal shows what to do last, right above the prompt; a comment in a pull request has two tables before the folds.
A page has the answer, what fixing it brings and how above its contents, and everything else folded below them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from bottleneck.reports.content import figures, raw, verdict
from bottleneck.reports.content.advice import advice, first_advice
from bottleneck.reports.content.comparison import changes
from bottleneck.reports.content.functions import functions
from bottleneck.reports.content.io import reading
from bottleneck.reports.content.ladder import ladder, not_measured, throughput
from bottleneck.reports.content.loop import loop
from bottleneck.reports.content.operators import operators
from bottleneck.reports.content.overview import overview
from bottleneck.reports.content.payload import moved_bytes, payload
from bottleneck.reports.content.stages import stages
from bottleneck.reports.content.transforms import transforms
from bottleneck.reports.content.usage import utilisation
from bottleneck.reports.document import Document, Link, Links, Section
from bottleneck.results.comparison import Comparison, Sweep
from bottleneck.results.format import UNKNOWN
from bottleneck.results.records import Result

_Part = Callable[[Result], Iterable[Section]]


def _opened(part: _Part) -> _Part:
    return lambda result: (replace(section, folded=False) for section in part(result))


def _folded(part: _Part) -> _Part:
    return lambda result: (replace(section, folded=True) for section in part(result))


_OUTLINES: dict[str, tuple[_Part, ...]] = {
    "text": (
        *(verdict.answer, ladder, stages, loop, transforms, functions, utilisation, operators),
        *(not_measured, verdict.warnings, advice, moved_bytes, reading, verdict.cost),
    ),
    "markdown": (
        *(verdict.answer, ladder, first_advice, verdict.count_of_warnings, verdict.cost),
        *(verdict.warnings, advice, stages, loop, transforms, functions, payload, utilisation, operators, reading),
        *(not_measured, throughput, raw.setting, raw.blocks),
    ),
    "html": (
        *(overview, _opened(verdict.warnings), _opened(advice)),
        *(
            figures.charts,
            figures.steps,
            _folded(ladder),
            stages,
            loop,
            transforms,
            functions,
            figures.flamegraph,
            reading,
            payload,
        ),
        *(utilisation, operators, figures.blocks, figures.timeline, not_measured, raw.setting, verdict.cost),
    ),
}


def result_document(
    result: Result, form: str, compared: Comparison | None = None, links: Sequence[Link] = ()
) -> Document:
    """The report of a result, with what changed where that is known, and links to its files."""
    sections = [section for part in _OUTLINES[form] for section in part(result)]
    before = changes(compared, as_part=True) if compared is not None else ()
    at = 0 if form == "markdown" else 1  # a pull request is about the change, a page about the job
    sections[at:at] = [*before, Section("", (Links(tuple(links)),), folded=False)]
    return Document(tuple(sections), f"bottleneck: {result.verdict.bottleneck or UNKNOWN}")


def comparison_document(compared: Comparison | Sweep) -> Document:
    """The report of a comparison, the same in every format."""
    return Document(tuple(changes(compared)))
