"""The report for a pull request: a sentence, one table, and everything else folded."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.reports import numbers, sanitize, view
from bottleneck.reports.content import gain
from bottleneck.reports.writers.folds import MAX_LINE, MAX_ROWS, Fold, all_folds, remedy, table_row
from bottleneck.results.records import Result

LIMIT = 60_000
"""Characters that a report stays under; GitHub takes 65,536 in a comment."""

ROOM_FOR_NOTES = 500
"""Characters kept for naming the folds that are left out."""

BAR_WIDTH = 16

_SEE_ALL = "`bottleneck report RESULT.json --format html` shows all of it."


def render_markdown(result: Result, intro: str = "") -> str:
    """The report as GitHub markdown of fewer than `LIMIT` characters.

    Args:
        result: What to report.
        intro: Markdown to begin with, short and safe to show.
    """
    text = intro + "\n".join(_summary(result))
    folds = [fold for fold in all_folds(result) if fold.items]
    left_out = []
    for fold in folds:
        room = LIMIT - len(text) - ROOM_FOR_NOTES
        # Only the last may take all that is left, so that a long fold leaves some for the others.
        shown = _fold(fold, room if fold is folds[-1] else room // 2)
        if shown:
            text += "\n" + shown
        else:
            left_out.append(fold.title)
    if left_out:
        text += f"\n_Left out for want of room: {', '.join(left_out)}. {_SEE_ALL}_\n"
    return text


# --- before the folds -------------------------------------------------------------------------------------


def _summary(result: Result) -> Iterator[str]:
    answer, *details = view.sentences(result)
    yield f"**{sanitize.markdown(answer)}**"
    yield ""
    for detail in details[:5]:
        yield sanitize.markdown(detail)
        yield ""
    yield from _ladder(result)
    if result.advice:
        first = result.advice[0]
        title = sanitize.markdown(first.title, MAX_LINE)
        yield f"**Next:** {title} {remedy(first)} {gain.expected_gain(first)}".rstrip()
        yield ""
    if result.warnings:
        plural = "s" if len(result.warnings) > 1 else ""
        yield f"{len(result.warnings)} warning{plural} below: read before trusting a number."
        yield ""
    yield f"<sub>{sanitize.markdown(view.cost(result))} {sanitize.markdown(_tool(result))}</sub>"
    yield ""


def _ladder(result: Result) -> Iterator[str]:
    rungs = view.ladder(result)
    if not rungs:
        return
    yield "| stage | samples/s | drop | share of step | | finding | gain if free |"
    yield "|:--|--:|--:|--:|:--|:--|--:|"
    for rung in rungs[:MAX_ROWS]:
        stage = rung.stage
        name = stage.name if stage else rung.experiment.name
        share = stage.exposed_share if stage else None
        yield table_row(
            sanitize.markdown_code(name),
            numbers.rate_with_half_width(rung.experiment.coupled),
            numbers.percent(rung.drop),
            numbers.percent(share.estimate if share else None),
            numbers.bar(rung.fraction, BAR_WIDTH),
            view.finding(stage),
            numbers.gain_interval(stage.gain_if_free if stage else None),
        )
    if len(rungs) > MAX_ROWS:
        yield table_row(f"… and {len(rungs) - MAX_ROWS} more", "", "", "", "", "", "")
    yield ""


def _tool(result: Result) -> str:
    return f"{result.tool.name} {result.tool.version}, {result.created}"


# --- fitting ----------------------------------------------------------------------------------------------


def _fold(fold: Fold, room: int) -> str:
    """The fold with as many of its items as there is room for; empty when there is none for one."""
    opening = f"<details>\n<summary>{fold.title}</summary>\n\n" + "".join(f"{line}\n" for line in fold.head)
    closing = "\n</details>\n"
    room -= len(opening) + len(closing) + 200  # 200: the note on what is left out
    shown: list[str] = []
    for item in fold.items:
        room -= len(item) + 1
        if room < 0:
            break
        shown.append(item)
    missing = len(fold.items) - len(shown)
    if missing and not shown:
        return ""
    note = f"\n_{missing:,} of {len(fold.items):,} left out for want of room. {_SEE_ALL}_\n" if missing else ""
    return opening + "".join(f"{item}\n" for item in shown) + note + closing
