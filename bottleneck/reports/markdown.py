"""A document as GitHub markdown that fits into a comment: folded parts are cut if there is no room."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bottleneck.reports import sanitize
from bottleneck.reports.document import Bar, Block, Column, Document, Items, Links, Paragraph, Step, Steps, Table

LIMIT = 60_000
"""Characters that a report stays under; GitHub takes 65,536 in a comment."""
ROOM_FOR_NOTES = 1_000
"""Characters kept for naming the folds that are left out."""
MAX_ROWS = 50
"""Rows of a table that is not folded."""
MAX_LINE = 300
"""Characters of a cell, or of a command."""
MAX_OPEN = 1_000
"""Characters of a text that is not folded: there may be some, and each character can take eight."""
MAX_LINKS = 10
BAR_WIDTH = 16

_SEE_ALL = "`bottleneck report RESULT.json --format html` shows all of it."
_FRAMES = {
    "plain": "{}",
    "answer": "**{}**",
    "note": "{}",
    "small": "<sub>{}</sub>",
    "state": "**{}**",
    "heading": "### {}",
}


def render_markdown(document: Document) -> str:
    """Return the report as GitHub markdown of fewer than `LIMIT` characters; it ends with one newline."""
    sections = list(document.shown("markdown"))
    parts = [None if section.folded else _open(blocks) for section, blocks in sections]
    folds = [at for at, part in enumerate(parts) if part is None]
    room, left_out = LIMIT - ROOM_FOR_NOTES - sum(len(part) for part in parts if part), []
    for at in folds:
        section, blocks = sections[at]
        # Only the last may take all that is left, so that a long fold leaves some for the others.
        parts[at] = _fold(sanitize.markdown(section.title), blocks, room if at == folds[-1] else room // 2)
        room -= len(parts[at] or "")
        if not parts[at]:
            left_out.append(section.title)
    if left_out:
        parts.append(f"_Left out to save space: {', '.join(left_out)}. {_SEE_ALL}_")
    return "\n\n".join(part for part in parts if part) + "\n"


def _open(blocks: Sequence[Block]) -> str:
    made = []
    for block in blocks:
        head, items = _block(block, folded=False)
        # Alerts are blocks of their own.
        made.append(("\n\n" if isinstance(block, (Items, Steps)) else "\n").join([*head, *items[:MAX_ROWS]]))
        if len(items) > MAX_ROWS:
            made.append(f"_… and {len(items) - MAX_ROWS} more._")
    return "\n\n".join(made)


def _fold(title: str, blocks: Sequence[Block], room: int) -> str:
    """Return the fold with as many of its items as there is room for; empty if there is none."""
    opening, closing = f"<details>\n<summary>{title}</summary>\n\n", "\n\n</details>"
    made = [_block(block, folded=True) for block in blocks]
    room -= len(opening) + len(closing) + 200  # 200: the note on omissions
    room -= sum(len(line) + 2 for head, _ in made for line in head)
    shown: list[list[str]] = []
    for _, items in made:
        shown.append([])
        for item in items:
            room -= len(item) + 1
            if room < 0:
                break
            shown[-1].append(item)
    total, kept = sum(len(items) for _, items in made), sum(map(len, shown))
    if room < 0 and not kept:
        return ""
    parts = [
        "\n".join([*head, *items])
        for (head, all_items), items in zip(made, shown, strict=True)
        if items or not all_items
    ]
    if kept < total:
        parts.append(f"_{total - kept:,} of {total:,} left out to save space. {_SEE_ALL}_")
    return opening + "\n\n".join(filter(None, parts)) + closing


def _block(block: Block, *, folded: bool) -> tuple[list[str], list[str]]:
    """Return the first lines of a block, and its items, which may be cut; an item may have several lines."""
    limit = sanitize.MAX_TEXT if folded else MAX_OPEN
    if isinstance(block, Paragraph):
        frame = "#### {}" if block.role == "heading" and folded else _FRAMES[block.role]
        return [frame.format(sanitize.markdown(block.text, limit))], []
    if isinstance(block, Items):
        # GitHub shows no alert in a fold.
        form = "> [!WARNING]\n> {}" if block.warn and not folded else "- {}"
        return [], [form.format(sanitize.markdown(text, limit)) for text in block.texts]
    if isinstance(block, Steps):
        return [], [_step(step, limit) + "\n" * folded for step in block.steps]
    if isinstance(block, Table):
        columns, rows = block.shown("markdown")
        head = [
            _row(sanitize.markdown(column.title, MAX_LINE) for column in columns),
            f"|{'|'.join('--:' if column.is_numeric else ':--' for column in columns)}|",
        ]
        return head, [_row(map(_cell, columns, row)) for row in rows]
    if isinstance(block, Links):
        return [" · ".join(f"[{link.text}]({link.url})" for link in block.links[:MAX_LINKS])], []
    return [], []


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(column: Column, cell: str | Bar) -> str:
    if isinstance(cell, Bar):
        return cell.text(BAR_WIDTH)
    if column.kind == "code":
        return sanitize.markdown_code(cell)
    return sanitize.markdown_code(cell, MAX_LINE) if column.kind == "path" else sanitize.markdown(cell, MAX_LINE)


def _step(step: Step, limit: int) -> str:
    """Return a step, with its edit as a coloured block."""
    place = f" ({sanitize.markdown_code(step.place, MAX_LINE)})" if step.place else ""
    text = sanitize.markdown(step.text, limit)
    head = f"**{sanitize.markdown(step.title.rstrip('.'), MAX_LINE)}**{place}{f'. {text}' if text else ''}"
    block = sanitize.markdown_block(step.code, "diff" if step.is_diff else "python") if step.code.strip() else ""
    proof = f"Prove it: {sanitize.markdown_code(step.proof, MAX_LINE)}" if step.proof else ""
    return "\n\n".join(filter(None, (head, block, proof)))
