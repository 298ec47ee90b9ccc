"""The measurements of `make bench`, part by part: kept in `results.json`, shown in `RESULTS.md`.

Each part carries its day and how steady the machine was, so that one of them can be taken again without the others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.checks import Check, checks_table, markdown_table, off_list

_INTRODUCTION = (
    "Written by `make bench`, not edited by hand. A train step that sleeps stands for an accelerator. Costs are per "
    "batch, of the loader alone. They are judged by plain loops before and after the diagnosis: by what goes when the "
    "stage is taken out or, where that cannot be done, by a clock around it."
)


@dataclass(frozen=True)
class Part:
    """The measurements of one part of the bench.

    Attributes:
        name: By which it is asked for.
        taken: The day.
        machine: Property -> value, how steady it was among them.
        sections: (title, tables in markdown).
        checks: The bars of this part.
        revision: Of the code that measured it.
    """

    name: str
    taken: str
    machine: dict[str, str]
    sections: tuple[tuple[str, str], ...]
    checks: tuple[Check, ...]
    revision: str = "a revision that was not kept"


def to_markdown(
    parts: Sequence[Part],
    names: Sequence[str] = (),
    title: str = "Results of `make bench`",
    introduction: Sequence[str] = (_INTRODUCTION,),
) -> str:
    """The whole of a page such as RESULTS.md, the parts in the order in which they are given.

    Args:
        parts: What was measured.
        names: Of all parts that there are; the page says which of them have not been measured yet.
        title: Of the page.
        introduction: What the page begins with, as blocks of markdown.
    """
    blocks = [f"# {title}", *introduction]
    # What all parts share is shown once.
    shared = {
        what: value
        for what, value in (parts[0].machine.items() if parts else ())
        if all(part.machine.get(what) == value for part in parts)
    }
    if parts:
        blocks.append(markdown_table(("machine", ""), list(shared.items())))
        blocks += ["## Bars", checks_table(check for part in parts for check in part.checks)]
        blocks += [off_list(check for part in parts for check in part.checks)]
    missing = sorted(set(names) - {part.name for part in parts})
    if missing:
        blocks.append(f"Not measured yet: {', '.join(missing)}.")
    for part in parts:
        own = [f"{what} {value}" for what, value in part.machine.items() if what not in shared]
        note = f"Taken on {part.taken} with {part.revision}" + (f"; {'; '.join(own)}" if own else "") + "."
        for number, (heading, table) in enumerate(part.sections):
            blocks += [f"## {heading}", *([note] if number == 0 else []), table]
    return "\n\n".join(filter(None, blocks)) + "\n"


def merged(kept: Sequence[Part], new: Part, order: Sequence[str]) -> list[Part]:
    """The parts with one taken again, in the order of the bench."""
    by_name = {part.name: part for part in kept} | {new.name: new}
    return [by_name[name] for name in order if name in by_name]


def read(path: Path) -> list[Part]:
    """Return the parts in a file; none without a file."""
    if not path.exists():
        return []
    return [
        Part(
            **{
                **fields,
                "sections": tuple((title, table) for title, table in fields["sections"]),
                "checks": tuple(Check(**{**check, "off": tuple(check.get("off", ()))}) for check in fields["checks"]),
            }
        )
        for fields in json.loads(path.read_text(encoding="utf-8"))
    ]


def write(path: Path, parts: Sequence[Part], names: Sequence[str] = ()) -> None:
    """Keep the parts in a file, and beside it what they look like in markdown, as `to_markdown` makes it."""
    text = json.dumps([asdict(part) for part in parts], indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
    path.with_name("RESULTS.md").write_text(to_markdown(parts, names), encoding="utf-8")
