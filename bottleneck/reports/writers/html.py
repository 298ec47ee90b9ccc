"""The report as one HTML file that needs nothing else: no font, no link, and no script but that of the flamegraph."""

from __future__ import annotations

from typing import Any

from bottleneck.reports import numbers, sanitize, view
from bottleneck.reports.charts import flames
from bottleneck.reports.charts.charts import block_chart, charts
from bottleneck.reports.charts.flamegraph import script
from bottleneck.reports.charts.timeline import timeline
from bottleneck.reports.content import functions, gain, io, operators, payload, usage
from bottleneck.reports.document import shown_sections
from bottleneck.reports.writers.comparison import comparison_sections
from bottleneck.reports.writers.page import render_page
from bottleneck.results.comparison import Comparison
from bottleneck.results.records import Result

TEMPLATE = "report.html.j2"
MOST_FUNCTIONS = 20


def render_html(result: Result, compared: Comparison | None = None) -> str:
    """The report as one self-contained HTML document, light or dark as the reader's system is.

    Args:
        result: What was measured.
        compared: The same against what was measured before; None where there is nothing to compare with.
    """
    page = _page(result) | {"compared": shown_sections(list(comparison_sections(compared))) if compared else []}
    return render_page(TEMPLATE, page, script() if page["flamegraph"] else "")


def _page(result: Result) -> dict[str, Any]:
    answer, *details = [_shown(line) for line in view.sentences(result)]
    return {
        "answer": answer,
        "details": details,
        "state": result.verdict.state,
        "efficiency": numbers.percent_interval(result.verdict.efficiency),
        "epoch_efficiency": _epoch_efficiency(result),
        "bottleneck": _shown(result.verdict.bottleneck or numbers.UNKNOWN),
        "charts": charts(result),
        "blocks": block_chart(result),
        "rungs": _rungs(result),
        "stages": _stages(result),
        "transforms": _transforms(result),
        "transforms_note": _shown(view.transforms_note(result)),
        "functions": _functions(result),
        "functions_left_out": max(0, len(functions.all_functions(result)) - MOST_FUNCTIONS),
        "sampling": functions.sampling(result),
        "flamegraph": flames.flamegraph(result),
        "tensors": _tensors(result),
        "payload": payload.summary(result),
        "utilisation": _utilisation(result),
        "timeline_chart": timeline(result),
        "traces": _traces(result),
        "unavailable": [
            (", ".join(_shown(name) for name in names), _shown(reason)) for names, reason in view.unavailable(result)
        ],
        "waits": view.waits(result),
        "reading": [_shown(text) for text in io.sentences(result)],
        "cold_epoch": _shown(io.cold_epoch(result)),
        "warnings": [_shown(warning.message) for warning in result.warnings],
        "advice": [
            {
                "title": _shown(advice.title),
                "why": _shown(advice.why),
                "gain": gain.expected_gain(advice),
                "how": sanitize.public("\n".join(sanitize.lines(advice.how))),
            }
            for advice in result.advice
        ],
        "described": [
            (title, [(_shown(key), _shown(view.described(key, value))) for key, value in part.items()])
            for title, part in (("Environment", result.environment), ("Pipeline", result.pipeline))
            if part
        ],
        "cost": view.cost(result),
        "tool": _shown(f"{result.tool.name} {result.tool.version}"),
        "created": _shown(result.created),
    }


def _epoch_efficiency(result: Result) -> str:
    """The efficiency over a whole epoch, where that is surely lower."""
    verdict = result.verdict
    return numbers.percent_interval(verdict.epoch_efficiency) if verdict.judged_by == "epoch_efficiency" else ""


def _rungs(result: Result) -> list[dict[str, str]]:
    rows = []
    for rung in view.ladder(result):
        rate, stage = rung.experiment.coupled, rung.stage
        exposed = stage.exposed_s_per_batch if stage else None
        rows.append(
            {
                "name": _shown(rung.experiment.name),
                "rate": numbers.rate_with_half_width(rate),
                "step": numbers.duration(rate.seconds_per_batch if rate else None),
                "stage": _shown(stage.name) if stage else "",
                "adds": numbers.duration(exposed.estimate if exposed else None) if stage else "",
                "drop": numbers.percent(rung.drop),
                "finding": view.finding(stage),
            }
        )
    return rows


def _stages(result: Result) -> list[dict[str, str]]:
    return [
        {
            "name": _shown(stage.name),
            "cost": numbers.duration_interval(stage.cost_s_per_batch),
            "exposed": numbers.duration_interval(stage.exposed_s_per_batch),
            "share": numbers.percent_interval(stage.exposed_share),
            "waiting": _waiting(view.waiting(result, stage)),
            "gain": numbers.gain_interval(stage.gain_if_free),
        }
        for stage in view.stages_by_interest(result)
    ]


def _transforms(result: Result) -> list[dict[str, str]]:
    return [
        {
            "stage": _shown(stage),
            "name": _shown(row.name),
            "path": _shown(row.path),
            "calls": numbers.frequency(row.calls_per_sample),
            "time": numbers.duration(row.wall_s_per_call),
            "share": numbers.percent(row.share),
            "waiting": _waiting(row.waiting),
            "output": _shown(row.output),
        }
        for stage, rows in view.transforms(result).items()
        for row in rows
    ]


def _functions(result: Result) -> list[dict[str, str]]:
    return [
        {
            "stage": _shown(row.stage or ""),
            "name": _shown(row.function),
            "place": _shown(row.place),
            "own": numbers.percent(row.own_share),
            "waiting": numbers.percent(row.waiting),
        }
        for row in functions.all_functions(result)[:MOST_FUNCTIONS]
    ]


def _tensors(result: Result) -> list[dict[str, str]]:
    return [
        {
            "place": _shown(row.place),
            "shape": _shown(row.shape),
            "dtype": _shown(row.dtype),
            "size": row.size,
            "saving": _shown(row.saving),
        }
        for row in payload.tensors(result)
    ]


def _utilisation(result: Result) -> dict[str, Any]:
    return {
        "columns": usage.COLUMNS,
        "rows": [(_shown(row.name), _shown(row.mode), row.cells) for row in usage.rows(result)],
        "told": [
            _shown(line) for line in (usage.used_up(result), usage.memory(result), *usage.missing(result)) if line
        ],
    }


def _traces(result: Result) -> list[dict[str, Any]]:
    return [
        {
            "name": _shown(traced.name),
            "where": traced.where,
            "summary": _shown(traced.summary),
            "operators": [
                {
                    "name": _shown(row.name),
                    "calls": numbers.frequency(row.calls_per_step),
                    "time": numbers.duration(row.seconds_per_step),
                    "share": numbers.percent(row.share),
                }
                for row in traced.operators
            ],
        }
        for traced in operators.traced(result)
    ]


def _waiting(share: float | None) -> str:
    return "" if share is None else numbers.percent(share)


def _shown(text: str) -> str:
    return sanitize.public(sanitize.one_line(text))
