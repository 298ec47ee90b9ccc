"""`python -m benchmarks.gpu_page FOLDER`: add a folder's lines to those that are kept, and write the pages of them.

`benchmarks/GPU.md` begins with the table of jobs, which the README shows too; older lines are below.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.checks import markdown_table
from benchmarks.gpu_checks import HEADERS, ROWS, check_run, row
from benchmarks.gpu_lines import BEGIN, END, LINES, NAMES, PARTS, READY, REHEARSED, Line, Run, read_lines, shown_run
from benchmarks.kept import Part, to_markdown

HERE = Path(__file__).parent
KEPT, PAGE, README = HERE / "gpu_evidence.jsonl", HERE / "GPU.md", HERE.parent / "README.md"
_INTRODUCTION = (
    "Written by `python -m benchmarks.gpu_page` from `gpu_evidence.jsonl`, the lines of `python -m "
    "benchmarks.gpu_evidence`. Each figure of the tool is judged by a plain loop with events around each batch, over "
    "whole turns of its workers. Before each, one core was timed on photographs: figures are compared only where the "
    "host was equally fast."
)
_IN_README = re.compile(r"(?<=<!--gpu-table-->\n).*?(?=<!--/gpu-table-->)", re.DOTALL)
_OLDER = {
    "machine": "The machine, its copies and its clocks.",
    "proofs": "What CUDA does where this project depends on it.",
    "changes": "Every change of `tune`: opened, measured in two blocks, closed. The device's memory is the same before "
    "and after.",
    "planted": "Jobs with a planted bottleneck; the train step keeps the device busy, and the host free.",
    "few_workers": "ResNet-50 on JPEGs with too few workers, between plain loops.",
    "tune_script": "An unmodified script of a ResNet-50 with 2 workers: tuned, then timed with the patch.",
    "tune": "The job of PyTorch's profiler tutorial, tuned.",
    "photographs": "ResNet-50 on JPEGs that 16 workers decode and augment, between plain loops.",
    "scripts": "`bottleneck run` on scripts that copy in streams of their own, or read labels on the host.",
}
"""Earlier parts, and what they showed."""


# --- the page ----------------------------------------------------------------------------------------------


def jobs_table(lines: Sequence[Line]) -> str:
    """The table of jobs: the rate of a plain loop, that of the tool, its name and promise, and the real gain."""
    return markdown_table(HEADERS, [row(part, shown_run(lines, part)) for part in ROWS])


def to_page(lines: Sequence[Line]) -> str:
    """The page: the table of jobs, the bars, what each part found, and all other lines below."""
    runs = [run for name in NAMES if (run := shown_run(lines, name)) is not None]
    page = to_markdown([_part(run) for run in runs], NAMES, "On a GPU", (_INTRODUCTION, jobs_table(lines)))
    shown = {id(line) for run in runs for line in run.lines}
    older = [line for line in lines if id(line) not in shown and line["name"] != READY]
    return page + (f"\n{_older_lines(older)}\n" if older else "")


def _part(run: Run) -> Part:
    begin = run[BEGIN]
    part = next(part for part in PARTS if part.name == run.part)
    listed = "\n".join(_item(line) for line in run.lines if line["name"] not in (BEGIN, END))
    took = f"{run.status} after {_shown(run[END].get('seconds', 'no known time'))} s" if run[END] else run.status
    return Part(
        name=run.part,
        taken=begin["at"][:10],
        machine=begin["machine"],
        sections=((part.title, f"{part.what} ({took})\n\n{listed}"),),
        checks=tuple(check_run(run)),
        revision=begin["code"],
    )


def _older_lines(lines: Sequence[Line]) -> str:
    blocks = ["## Older lines", "What was measured by an earlier revision, and missed, stays."]
    for name in dict.fromkeys([*_OLDER, *NAMES]):
        mine = [line for line in lines if line["part"] == name]
        if mine:
            blocks += [f"### {name.replace('_', ' ').capitalize()}", _OLDER.get(name, ""), "\n".join(map(_item, mine))]
    return "\n\n".join(filter(None, blocks))


def _item(line: Line) -> str:
    held = {"True": " (held)", "False": " (**missed**)"}.get(str(line.get("holds")), "")
    facts = {key: value for key, value in line.items() if key not in ("part", "name", "holds") and value is not None}
    shown = "; ".join(f"{key.replace('_', ' ')} {_shown(value)}" for key, value in facts.items())
    return f"- {line['name'].replace('_', ' ')}{held}" + (f": {shown}" if shown else "")


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(each)}" for key, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(_shown, value)) or "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


# --- the files ---------------------------------------------------------------------------------------------


def with_table(readme: str, lines: Sequence[Line]) -> str:
    """The README with the table of jobs; none before any of them was measured."""
    measured = any(shown_run(lines, part) is not None for part in ROWS)
    table = f"\n{jobs_table(lines)}\n\n" if measured else ""
    return _IN_README.sub(lambda _: table, readme)


def write_pages(kept: Path = KEPT, page: Path = PAGE, readme: Path = README) -> None:
    """Write the page and the README's table from the lines that are kept."""
    lines = read_lines(kept)
    page.write_text(to_page(lines), encoding="utf-8")
    readme.write_text(with_table(readme.read_text(encoding="utf-8"), lines), encoding="utf-8")


def keep_lines(folder: Path, kept: Path = KEPT) -> int:
    """Add the lines of a folder that are not kept yet, and return how many those are.

    Raises:
        click.ClickException: The folder has none, or those of a rehearsal.
    """
    path = folder / LINES
    lines = read_lines(path)
    if not any(line["name"] == BEGIN for line in lines):
        raise click.ClickException(f"There are no lines in {path}. `python -m benchmarks.gpu_evidence` makes some.")
    if any(line.get("card") == REHEARSED for line in lines):
        raise click.ClickException(f"{path} is of a rehearsal, of which no line is kept.")
    known = set(kept.read_text(encoding="utf-8").splitlines()) if kept.exists() else set()
    new = [text for text in path.read_text(encoding="utf-8").splitlines() if text not in known]
    with kept.open("a", encoding="utf-8") as file:
        file.writelines(f"{text}\n" for text in new)
    return len(new)


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path, file_okay=False, exists=True))
def main(folder: Path | None) -> None:
    """Add the lines of FOLDER to those that are kept, and write benchmarks/GPU.md and the README's table."""
    if folder is not None:
        click.echo(f"{keep_lines(folder)} lines are new.")
    write_pages()


if __name__ == "__main__":
    main()
