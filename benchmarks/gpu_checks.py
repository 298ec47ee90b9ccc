"""Judges the lines of the evidence from a GPU by their bars, and makes the table row of each job."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.checks import Check
from benchmarks.gpu_host import agree
from benchmarks.gpu_lines import BEGIN, PARTS, Line, Run

MIB = 2**20
MAX_KEPT_BYTES = 4 * MIB
MAX_WORKSPACES_BYTES = 72 * MIB
"""The workspaces of cuBLAS for one stream, which are 65 MiB on an H100, and some."""
NEAR = 0.1
"""Part of the truth by which a promise may be off."""
MANY_WORKERS = 12
_MEASURED = ("kept", "dropped", "undecided")
"""Outcomes of a change that was measured."""
_TITLES = {part.name: part.title for part in PARTS}


# --- what lines say ----------------------------------------------------------------------------------------


def comparable(line: Line, others: Iterable[Line], key: str) -> float | None:
    """The mean of a number over the lines with the same speed of the host as one line; None without any."""
    found = [other[key] for other in others if key in other and agree(line, other)]
    return statistics.fmean(found) if found else None


def advice_gain(diagnosis: Line, advice: str) -> float | None:
    """Return the gain that a piece of advice promises; None if it is not given, or promises none."""
    gains = [one["gain"][0] for one in diagnosis.get("advice", ()) if one["id"] == advice and one["gain"] is not None]
    return gains[0] if gains else None


def _plain(run: Run) -> list[Line]:
    return [run["plain_before"], run["plain_after"]]


def _real_gain(run: Run, diagnosis: Line) -> float | None:
    """The throughput of the changed job over that of the job, where the host was equally fast."""
    changed = run["plain_changed"]
    plain = comparable(changed, _plain(run), "samples_per_s")
    if plain is None or comparable(diagnosis, [changed], "samples_per_s") is None:
        return None
    return float(changed["samples_per_s"] / plain)


def _named(diagnosis: Line) -> set[str]:
    """The stages that a diagnosis names."""
    one = diagnosis.get("bottleneck")
    return {stage for name in ([one] if one else diagnosis.get("contributors", ())) for stage in name.split("+")}


# --- bars --------------------------------------------------------------------------------------------------


def _compared(
    what: str, bar: str, found: float | None, truth: float | None, holds: Callable[[float, float], bool], unit: str = ""
) -> Check:
    """Compare a number with its truth; without one, as no plain loop ran on an equally fast host, nothing is judged."""
    if found is None:
        return Check(what, bar, "not known", held=False)
    if truth is None:
        return Check(what, bar, f"{found:.3g}{unit}, and no plain loop while the host was as fast", held=None)
    return Check(what, bar, f"{found:.3g}{unit}, and {truth:.3g}{unit}", held=holds(found, truth))


def _points(what: str, points: float, found: Line, truth: float | None) -> Check:
    """Compare an efficiency with that by events."""
    estimate = found["efficiency"][0] if found.get("efficiency") else None
    bar = f"within {100 * points:.0f} points of events"
    return _compared(f"{what}: efficiency", bar, estimate, truth, lambda one, other: abs(one - other) <= points)


def _near(what: str, share: float, found: float | None, truth: float | None, unit: str) -> Check:
    """Compare a number that may be off by a part of its truth."""
    return _compared(
        what, f"within {share:.0%}", found, truth, lambda one, other: abs(one - other) <= share * other, unit
    )


def _at_most(what: str, limit: float, found: float | None, unit: str) -> Check:
    shown = "not known" if found is None else f"{found:.3g}{unit}"
    return Check(what, f"≤ {limit:.3g}{unit}", shown, held=found is not None and found <= limit)


@dataclass(frozen=True)
class Bars:
    """Bars of a job that is diagnosed between plain loops.

    Attributes:
        names: Stages that may be named; at least one of them has to be.
        points: Largest distance of the efficiency from that by events.
        advice: Id of the advice whose gain is compared with that of the changed job.
        over: Accept any gain up to the real one; otherwise it has to be near it.
        half_width: Largest half width of the interval of the efficiency; None: any.
        state_s: Longest time until the state is told; None: any.
        end_s: Longest time until the diagnosis ends; None: any.
        copies: Compare the cost of the copy with events, and allow no doubt on the sum of costs.
    """

    names: frozenset[str]
    points: float
    advice: str
    over: bool = False
    half_width: float | None = None
    state_s: float | None = None
    end_s: float | None = None
    copies: bool = False


_SAMPLES = frozenset({"load", "augment", "fetch"})
BARS = {
    "few_workers": Bars(_SAMPLES, 0.03, "more-workers", half_width=0.05, state_s=12, end_s=30),
    "enough_workers": Bars(frozenset({"compute"}), 0.01, "mixed-precision", over=True, end_s=20),
    "fast_step": Bars(_SAMPLES, 0.03, "uint8-until-device"),
    "copies": Bars(frozenset({"copy", "handoff"}), 0.05, "pin-memory", copies=True),
}


def _check_described(run: Run) -> Iterator[Check]:
    bars, found, title = BARS[run.part], run["diagnosis"], _TITLES[run.part]
    named, efficiency = _named(found), found.get("efficiency")
    held = bool(named) and named <= bars.names
    yield Check(f"{title}: name", " or ".join(sorted(bars.names)), " and ".join(sorted(named)) or "no name", held)
    yield _points(title, bars.points, found, comparable(found, _plain(run), "efficiency"))
    if bars.half_width is not None:
        width = (efficiency[2] - efficiency[1]) / 2 if efficiency else None
        yield _at_most(
            f"{title}: half width of the efficiency", 100 * bars.half_width, width and 100 * width, " points"
        )
    if bars.state_s is not None:
        yield _at_most(f"{title}: state", bars.state_s, found.get("state_s"), " s")
    if bars.end_s is not None:
        yield _at_most(f"{title}: end", bars.end_s, found.get("took_s"), " s")
    yield _check_promise(run, bars, title)
    if bars.copies:
        yield from _check_copies(run, title)


def _check_promise(run: Run, bars: Bars, title: str) -> Check:
    """Compare the gain that an advice promises with that of the changed job."""
    what = f"{title}: gain of {bars.advice}"
    promised, real = advice_gain(run["diagnosis"], bars.advice), _real_gain(run, run["diagnosis"])
    if bars.over:
        return _compared(what, "not over the real one", promised, real, lambda one, other: one <= other, "x")
    return _near(what, NEAR, promised, real, "x")


def _check_copies(run: Run, title: str) -> Iterator[Check]:
    found = run["diagnosis"]
    cost = found.get("cost_s", {}).get("copy")
    truth = comparable(found, _plain(run), "copy_ms")
    yield _near(f"{title}: copy, by events", 0.2, cost and 1e3 * cost[0], truth, " ms")
    doubt = "costs-do-not-add-up"
    raised = doubt in found.get("warnings", ())
    yield Check(f"{title}: {doubt}", "not raised", "raised" if raised else "not raised", held=not raised)


def _check_tuning(run: Run) -> Iterator[Check]:
    found, title = run["tuning"], _TITLES[run.part]
    truth = comparable(found, [run["a1"], run["a2"]], "samples_per_s")
    yield _near(f"{title}: its baseline, by the script itself", NEAR, _base(found), truth, " samples/s")
    promised = found["gain"][0] if found.get("gain") else None
    yield _near(f"{title}: its gain, by the patched script", NEAR, promised, _tuned_gain(run), "x")
    tried = [part for trial in found.get("trials", ()) if trial["pairs"] for part in trial["setting"].split("+")]
    most = max((int(one.partition("=")[2]) for one in tried if one.strip().startswith("num_workers=")), default=0)
    what = f"{title}: the most workers that were tried"
    yield Check(what, f"≥ {MANY_WORKERS}", str(most), held=most >= MANY_WORKERS)


def _base(tuning: Line) -> float | None:
    """The throughput of the unchanged job, by a tuning."""
    return tuning["rungs"][0]["samples_per_s"][0] if tuning.get("rungs") else None


def _tuned_gain(run: Run) -> float | None:
    """The throughput with the patch over that without it, of pairs on an equally fast host."""
    given = [run["a1"], run["a2"]]
    ratios = [
        b["samples_per_s"] / a
        for b in (run["b1"], run["b2"])
        if "samples_per_s" in b and (a := comparable(b, given, "samples_per_s")) is not None
    ]
    return statistics.fmean(ratios) if ratios else None


def _check_running(run: Run) -> Iterator[Check]:
    found, title = run["run"], "a script, `run`"
    told = found.get("told", {})
    yield Check(f"{title}: status", "0", str(found.get("status", "none")), held=found.get("status") == 0)
    for key, what, wanted in (("compiled", "compilations", 1), ("wrong_images", "wrong images", 0)):
        yield Check(f"{title}: {what}", str(wanted), str(told.get(key, "not known")), held=told.get(key) == wanted)
    yield _points(title, 0.03, found, comparable(found, [run["plain"]], "efficiency"))


def _check_memory(run: Run) -> Iterator[Check]:
    kept, sharded = run["kept"], run["sharded"]
    cleared, tried = kept.get("kept_bytes_once_cleared"), kept.get("trials", {})
    recorded = any("cuda_graphs" in setting and outcome in _MEASURED for setting, outcome in tried.items())
    workspaces = (kept["kept_bytes"] - cleared) / MIB if recorded else None
    yield _at_most("memory kept by a tuning", MAX_KEPT_BYTES / MIB, cleared and cleared / MIB, " MiB")
    yield _at_most("workspaces kept by its recordings", MAX_WORKSPACES_BYTES / MIB, workspaces, " MiB")
    back = sharded.get("put_back")
    yield Check(
        "a sharded model, after its diagnosis", "as before", "as before" if back else "changed", held=back is True
    )


_CHECKS: dict[str, Callable[[Run], Iterator[Check]]] = {
    "tune_script": _check_tuning,
    "run_script": _check_running,
    "memory": _check_memory,
    "machine": lambda run: iter(()),
}


def check_run(run: Run) -> list[Check]:
    """The bars of a run of a part."""
    return list(_CHECKS.get(run.part, _check_described)(run))


# --- the table ---------------------------------------------------------------------------------------------


ROWS = (*BARS, "tune_script")
"""The parts that are a row."""
HEADERS = ("job", "card", "plain loop", "tool", "waits for", "gain promised", "gain real", "answered in")


def row(part: str, run: Run | None) -> tuple[str, ...]:
    """The row of a job in the table; dashes where it was not measured."""
    if run is None:
        return (_TITLES[part], *(["–"] * (len(HEADERS) - 1)))
    if part == "tune_script":
        found, given = run["tuning"], [run["a1"], run["a2"]]
        promised = found["gain"][0] if found.get("gain") else None
        real = None if promised is None else _tuned_gain(run)  # otherwise nothing was changed
        numbers = (_rate(given), _shown(_base(found)), "–", _times(promised), _times(real))
    else:
        found, promised = run["diagnosis"], advice_gain(run["diagnosis"], BARS[part].advice)
        waits_for = " and ".join(sorted(_named(found))) or str(found.get("state", "–")).replace("_", "-")
        tool = found.get("samples_per_s", {}).get("raw")
        numbers = (_rate(_plain(run)), _shown(tool), waits_for, _times(promised), _times(_real_gain(run, found)))
    return (_TITLES[part], str(run[BEGIN]["card"]), *numbers, _shown(found.get("took_s"), " s"))


def _rate(lines: Sequence[Line]) -> str:
    found = [line["samples_per_s"] for line in lines if "samples_per_s" in line]
    return _shown(statistics.fmean(found)) if found else "–"


def _shown(number: Any, unit: str = "/s") -> str:
    return "–" if number is None else f"{number:,.0f}{unit}"


def _times(factor: float | None) -> str:
    return "–" if factor is None else f"{factor:.2f}x"
