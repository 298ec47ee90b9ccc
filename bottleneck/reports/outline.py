"""The documents: which sections a result has in each format, and in which order.

A terminal shows what to do last, right above the prompt; a comment in a pull request has one table before two folds.
A page has the answer, what fixing it brings and how above its contents, and everything else folded below them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from bottleneck.analysis.parts import completed
from bottleneck.reports import answer, evidence, html, plan, tuning, watched
from bottleneck.reports.advice import advice, first_advice, short_advice
from bottleneck.reports.answer import job_name, standing
from bottleneck.reports.comparison import changes, changes_of_job
from bottleneck.reports.document import Block, Document, Link, Links, Paragraph, Section
from bottleneck.reports.evidence import all_ranks, ranks
from bottleneck.reports.inside import functions, lines, operators, transforms, wall_clock
from bottleneck.reports.starting import starting
from bottleneck.reports.step import ladder, loop, not_measured, possible, stages, step_bars, step_table
from bottleneck.results.comparison import Comparison
from bottleneck.results.plan import PlanResult
from bottleneck.results.records import Result
from bottleneck.results.tuning import TuningResult
from bottleneck.results.watched import WatchedResult

_Part = Callable[[Result], Iterable[Section]]


def _opened(part: _Part) -> _Part:
    return lambda result: (replace(section, folded=False) for section in part(result))


_TABLES: tuple[_Part, ...] = (
    ladder,
    stages,
    evidence.on_device,
    wall_clock,
    starting,
    loop,
    transforms,
    lines,
    functions,
)
_MEASURED: tuple[_Part, ...] = (
    *(answer.further_warnings, *_TABLES, evidence.payload, evidence.utilisation, operators, evidence.reading),
    *(not_measured, evidence.setting),
)
"""Sections of a pull request that share one fold."""


def _all_measurements(result: Result) -> Iterator[Section]:
    """Yield several sections as one, their titles as headings in it."""
    sections = tuple(section for part in _MEASURED for section in part(result))
    blocks: list[Block] = []
    for section, shown in Document(sections).shown("markdown"):
        blocks += [Paragraph(section.title, "heading"), *shown]
    yield Section("All measurements", tuple(blocks))


_OUTLINES: dict[str, tuple[_Part, ...]] = {
    "text": (
        *(answer.short_answer, ranks, step_bars, partial(answer.warnings, most=answer.MAX_WARNINGS)),
        *(short_advice, answer.where_more_is),
    ),
    "verbose": (
        *(answer.short_answer, ranks, step_bars, *_TABLES, evidence.utilisation, operators, not_measured),
        *(evidence.reading, answer.warnings, advice, answer.cost),
    ),
    "markdown": (
        *(answer.pull_request_answer, ranks, step_table, first_advice),
        *(partial(answer.warnings, most=answer.MAX_ALERTS), advice, _all_measurements, answer.cost),
    ),
    "html": (
        *(answer.page_answer, ranks, step_bars, possible, _opened(answer.warnings), _opened(advice)),
        *(all_ranks, *_TABLES, evidence.reading, evidence.payload, evidence.utilisation, operators, html.blocks),
        *(not_measured, evidence.setting, answer.cost),
    ),
}


def result_document(
    result: Result, form: str, compared: Comparison | None = None, links: Sequence[Link] = ()
) -> Document:
    """Return the report of a result, with the change if known, and links to its files."""
    result = completed(result)
    sections = [section for part in _OUTLINES[form] for section in part(result)]
    linked = Section("", (Links(tuple(links)),), folded=False)
    if form == "markdown":  # a pull request is about the change, a page about the job
        begin = sections[:1] if compared is None else changes_of_job(compared, result)
        sections = [*begin, *sections[1:], linked]
    elif compared is not None:
        sections[1:1] = changes(compared, as_part=True)
    return Document(tuple(sections), f"{job_name(result)} – {answer.STATES[standing(result)].lower()}")


_TUNING_OUTLINES: dict[str, tuple[Callable[[TuningResult], Iterable[Section]], ...]] = {
    "text": (
        *(tuning.answer, tuning.ladder, tuning.changed_lines, tuning.others_in_short, tuning.warnings),
        *(tuning.took, tuning.now),
    ),
    "verbose": (
        *(tuning.answer, tuning.ladder, tuning.others, tuning.before, tuning.warnings, tuning.changed_lines),
        *(tuning.took, tuning.now),
    ),
    "markdown": (
        *(tuning.answer, tuning.ladder_for_a_phone, tuning.changed_lines, tuning.now, tuning.warnings),
        *(tuning.ladder, tuning.others, tuning.next_steps, tuning.before, tuning.took),
    ),
    "html": (
        *(tuning.answer, tuning.warnings, partial(tuning.ladder, folded=False)),
        *(partial(tuning.changed_lines, title=tuning.CHANGE), tuning.now, tuning.others, tuning.next_steps),
        *(tuning.before, evidence.setting, tuning.took),
    ),
}


def tuning_document(result: TuningResult, form: str) -> Document:
    """Return the report of a tuning. In a terminal it ends with the present bottleneck, right above the prompt."""
    before, after = (None if found is None else completed(found) for found in (result.before, result.after))
    result = replace(result, before=before, after=after)
    return Document(tuple(section for part in _TUNING_OUTLINES[form] for section in part(result)), "bottleneck tune")


def comparison_document(compared: Comparison) -> Document:
    """Return the report of a comparison, the same in every format."""
    return Document(tuple(changes(compared)))


def plan_document(planned: PlanResult) -> Document:
    """Return the report of a plan, the same in every format."""
    parts = (plan.answer, plan.curve, plan.machine)
    return Document(tuple(section for part in parts for section in part(planned)), "bottleneck plan")


def watched_document(result: WatchedResult) -> Document:
    """The report of a job that was watched, the same in every format; what to do stands last."""
    parts = (watched.answer, watched.loop, watched.ranks, watched.lines, watched.next_steps, watched.origin)
    title = f"{watched.job_name(result)} – {answer.STATES[result.verdict.state].lower()}"
    return Document(tuple(section for part in parts for section in part(result)), title)
