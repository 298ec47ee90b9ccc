"""A plan: the machine that the job needs, its throughput with more or fewer cores, and the costs of a sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bottleneck.analysis.plan.plan import amount
from bottleneck.reports.answer import job_facts, job_name
from bottleneck.reports.document import PAGES, TERMINAL, Bar, Column, Figure, Items, Paragraph, Section, Table
from bottleneck.results.format import UNKNOWN, count, duration, percent, percent_interval, size, time_interval
from bottleneck.results.plan import PlannedMachine, PlanResult


def answer(plan: PlanResult) -> Iterator[Section]:
    """Yield the sentence, its assumptions, and reasons not to trust it."""
    blocks = (
        Paragraph(f"PLAN  {job_name(plan)}", "state", on=(*TERMINAL, "html")),
        Paragraph(f"What {job_name(plan)} needs", "heading", on=("markdown",)),
        Paragraph(job_facts(plan), "small"),
        Paragraph(plan.sentence, on=TERMINAL),
        Paragraph(plan.sentence, "answer", on=PAGES),
        Items(plan.warnings, "Warning", warn=True),
    )
    yield Section("", blocks, folded=False)


def curve(plan: PlanResult) -> Iterator[Section]:
    """Yield throughput and efficiency by cores per GPU, and the assumptions."""
    columns = (
        Column("cores", "number"),
        Column("workers", "number"),
        Column(plan.rate_unit, "number"),
        Column("of the device", "number"),
        Column("", "bar", on=TERMINAL),
        Column("a million", "number"),
    )
    rows = tuple(
        (
            amount(at.cores),
            f"{at.workers}",
            f"{count(at.samples_per_s.estimate)} ({count(at.samples_per_s.low)}–{count(at.samples_per_s.high)})",
            percent_interval(at.efficiency),
            Bar(at.efficiency.estimate),
            "" if at.price_per_million is None else count(at.price_per_million),
        )
        for at in plan.curve
    )
    yield Section("Per GPU", (Table(columns, rows), Figure(draw(plan.curve)), Items(plan.assumptions)), False)


def machine(plan: PlanResult) -> Iterator[Section]:
    """Yield the needs of the requested machine, and the costs of a sample."""
    asked, sample = plan.machine, plan.per_sample
    workers, rate, price = asked.workers, asked.samples_per_s.estimate, asked.price_per_million
    name = f"{asked.gpus} {'GPU' if asked.gpus == 1 else 'GPUs'}, {amount(asked.cores)} cores"
    rows = (
        ("workers", f"{workers}", ""),
        ("their memory", *_of_each(workers, plan.worker_bytes, "a worker")),
        ("/dev/shm", *_of_each(workers, plan.shm_bytes_per_worker, "a worker")),
        ("read each second", *_of_each(rate, sample.read_bytes, "a sample")),
        ("copied each second", *_of_each(rate, sample.copied_bytes, "a sample")),
        ("a million samples cost", count(price), ""),
    )
    known = tuple(row for row in rows if row[1] != UNKNOWN)
    yield Section(name, (Table((Column(name), Column("", "number"), Column("")), known),), folded=False)
    costs = (
        ("CPU time of workers", time_interval(sample.worker_cpu_s)),
        ("CPU time of the main process", duration(sample.main_cpu_s)),
        ("waiting of a worker", time_interval(sample.worker_wait_s)),
    )
    yield Section("Cost of a sample", (Table((Column("a sample takes"), Column("", "number")), costs),), folded=False)


def _of_each(number: float, nbytes: float | None, what: str) -> tuple[str, str]:
    return (UNKNOWN, "") if nbytes is None else (size(number * nbytes), f"{size(nbytes)} {what}")


# --- the curve ----------------------------------------------------------------------------------------------

_WIDTH, _HEIGHT, _LEFT, _BELOW = 720, 260, 60, 40


@dataclass(frozen=True)
class Curve:
    """A line in its band, as points of SVG."""

    title: str
    line: str
    band: str
    ticks: tuple[tuple[float, float, str], ...]
    """Ticks: middle of the text, and the text."""
    width: float = _WIDTH
    height: float = _HEIGHT


def draw(curve: Sequence[PlannedMachine]) -> Curve:
    """Return the efficiency by cores for each GPU, from nothing on."""
    most = max(at.cores for at in curve)

    def place(cores: float, share: float) -> tuple[float, float]:
        x = _LEFT + (_WIDTH - _LEFT - 20) * cores / most
        return round(x, 1), round(10.0 + (_HEIGHT - _BELOW) * (1 - share), 1)

    def line(bound: str) -> list[str]:
        points = [place(0, 0), *(place(at.cores, getattr(at.efficiency, bound)) for at in curve)]
        return [f"{x},{y}" for x, y in points]

    below = tuple((place(at.cores, 0)[0], _HEIGHT - 12.0, amount(at.cores)) for at in curve)
    left = tuple((_LEFT - 28.0, place(0, share)[1], percent(share)) for share in (0.5, 1.0))
    title = "Part of what the device can do, by cores per GPU"
    return Curve(title, " ".join(line("estimate")), " ".join([*line("low"), *line("high")[::-1]]), (*below, *left))
