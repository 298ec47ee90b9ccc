"""Writes the numbers of the README's first screen: `python -m docs.make.first_screen`.

The table of accuracy is taken from the results of the bench, the badges from these and `pyproject.toml`.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README, RESULTS = ROOT / "README.md", ROOT / "benchmarks" / "RESULTS.md"
BADGES = ROOT / "docs" / "pictures" / "badges.svg"
BEGIN, END = "<!--accuracy-->\n\n", "\n<!--/accuracy-->\n"
ROWS = {
    "verdicts on planted pipelines": "planted slow stages that are named",
    "cost of a planted stage of 1 ms or more": "costs of stages within 10 % of a plain loop",
    "coverage of the 95 % intervals of costs": "95 % intervals that contain the true cost",
    "cause of a slow job": "jobs of public reports whose cause is advised first",
    "the same advice for a job without the cause": "the same jobs without the cause that get this advice",
}
"""Targets of the bench, by their names in the README."""
_CELL, _HIGH = 6.6, 20


def bars(results: str) -> dict[str, tuple[str, str]]:
    """Return the measurement and the judgement, by the name of the target."""
    table = results.partition("\n## Bars\n")[2].partition("\n\nOff in")[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines() if "|" in line]
    return {name: (measured, held.strip(" *|")) for name, _, measured, held in rows[2:]}


def accuracy(results: str) -> str:
    """Return the table of the README, in markdown.

    Raises:
        KeyError: The bench has no such target any more.
    """
    found = bars(results)
    held = sum(judged == "held" for _, judged in found.values())
    lines = [f"| {called} | {found[name][0].partition(';')[0]} |" for name, called in ROWS.items()]
    return "\n".join(
        [
            "| compared with plain training loops | measured |",
            "|:--|:--|",
            *lines,
            "",
            f"{held} of {len(found)} targets are met; [each miss is listed](benchmarks/RESULTS.md). `make bench` "
            "measures them again, `python -m benchmarks.bench --part causes` one part.",
            "",
        ]
    )


def badges(results: str, project: str) -> str:
    """Return facts about the package, as a strip: Pythons, torch, licence, targets."""
    pythons = re.findall(r'"Programming Language :: Python :: 3\.(\d+)"', project)
    [torch], [licence] = re.findall(r'"torch>=([\d.]+)"', project), re.findall(r'^license = "(.*)"$', project, re.M)
    judged = [held for _, held in bars(results).values()]
    told = [
        ("python", f"3.{pythons[0]} – 3.{pythons[-1]}", "#3e7bb6"),
        ("torch", f"{torch} or newer", "#3e7bb6"),
        ("licence", licence, "#3e7bb6"),
        ("accuracy", f"{judged.count('held')} of {len(judged)} targets met", "#2f7d4f"),
    ]
    drawn, x = [], 0.0
    for name, value, colour in told:
        left, right = len(name) * _CELL + 14, len(value) * _CELL + 14
        drawn.append(
            f'<rect x="{x:.1f}" width="{left + right:.1f}" height="{_HIGH}" rx="3" fill="#3d444d"/>'
            f'<rect x="{x + left:.1f}" width="{right:.1f}" height="{_HIGH}" rx="3" fill="{colour}"/>'
            f'<text x="{x + left / 2:.1f}" y="14">{name}</text>'
            f'<text x="{x + left + right / 2:.1f}" y="14">{escape(value)}</text>'
        )
        x += left + right + 6
    label = escape(", ".join(f"{name} {value}" for name, value, _ in told))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{x - 6:.0f}" height="{_HIGH}" role="img" aria-label="{label}">'
        "\n<style>text{font:11px Verdana,'DejaVu Sans',sans-serif;fill:#fff;text-anchor:middle}</style>\n"
        + "\n".join(drawn)
        + "\n</svg>\n"
    )


def with_accuracy(readme: str, results: str) -> str:
    """Return the README with the present table."""
    before, _, rest = readme.partition(BEGIN)
    return before + BEGIN + accuracy(results) + END + rest.partition(END)[2]


if __name__ == "__main__":
    measured = RESULTS.read_text(encoding="utf-8")
    README.write_text(with_accuracy(README.read_text(encoding="utf-8"), measured), encoding="utf-8")
    BADGES.write_text(badges(measured, (ROOT / "pyproject.toml").read_text(encoding="utf-8")), encoding="utf-8")
