"""Tunings of planted jobs and of scripts: the changes kept, their gain and throughput against plain loops.

python -m benchmarks.tuned [--quick] [--only NAME]
"""

from __future__ import annotations

import fcntl
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from benchmarks import small_jobs
from benchmarks.checks import Check, distance_outside, find_by_name, markdown_table, off_list
from benchmarks.datasets import Images, Step
from benchmarks.gains import factor_interval
from benchmarks.observer import PlainLoop
from benchmarks.paired import PAIRS, PAIRS_QUICK, Realised, batches_of_block, enough_of, realise
from benchmarks.planted import find_planted
from benchmarks.script_jobs import SCRIPTS, run_python
from benchmarks.uneven import LENGTH, UnevenLoader
from benchmarks.work import Work, wait
from bottleneck.errors import BottleneckError
from bottleneck.job.loader_args import loader_argument_names
from bottleneck.job.pipeline import Pipeline
from bottleneck.results.json import saved_from_json
from bottleneck.results.records import Interval, Rate
from bottleneck.results.tuning import TuningResult
from bottleneck.tuner.change import Change
from bottleneck.tuner.tune import tune

TOLERANCE = 0.03
"""Share of what plain loops say by which it may lie outside of an interval."""
_BLOCKS, _BLOCK_S = 5, 3.0
_BUDGET_S, _BUDGET_QUICK_S = 240.0, 90.0
_CLEAR_S, _NOTHING_S = 90.0, 60.0
"""Time limits of a tuning of the loader: if something clearly pays, and if nothing does."""
_SCRIPT_PAIRS = 3
_SCRIPT_SECONDS = 12.0
"""Long enough for decoding large images, whose time varies by 4 % from one three seconds to the next."""

Fields = dict[str, Any]


@dataclass(frozen=True)
class Planted:
    """A job of which the right settings are known.

    Attributes:
        name: For people.
        build: Makes the fields of the pipeline; of a script none.
        tried: Names of built-in changes; of a script none stands for all.
        own: Further changes, each as the fields that it replaces.
        by_hand: Built-in changes as the fields that a user edits for them, for plain loops.
        kept: Names of the changes that have to be kept, and no others.
        at_least: The value that one of them has to have.
        at_most: The value that one may have.
        script: A script of the bench, with its arguments when these changes have been made by hand; None: it is none.
        within_s: How long the tuning may take [s].
        batch: Samples of a batch of the script.
    """

    name: str
    build: Callable[[], Fields]
    tried: tuple[str, ...]
    own: dict[str, Fields] = field(default_factory=dict)
    by_hand: dict[str, Fields] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    at_least: int = 0
    at_most: int = 1024
    script: Callable[[Mapping[str, Any]], tuple[str, ...]] | None = None
    within_s: float = math.inf
    batch: int = 16


class OneAtATime(Images):
    """Images that only one process at a time can load, as from a disk with a single arm."""

    def __init__(self, load: Work) -> None:
        super().__init__(LENGTH, load, wait(0.0))

    def __getitem__(self, index: int) -> Any:
        with open(__file__) as arm:  # any file that all of them know
            fcntl.flock(arm, fcntl.LOCK_EX)
            return super().__getitem__(index)


def _one_reader() -> Fields:
    """Four workers, of which one loads and the others wait for it."""
    return UnevenLoader(4, 0.0, 0.0, 0.010).build(dataset=OneAtATime(wait(0.008)))


def _costly_hand_off() -> Fields:
    """A table in workers, for a step so long that what it costs to watch a batch, some 30 µs, is little of it."""
    return small_jobs.table_in_workers() | {"train_step": Step(wait(0.002))}


_SLOW_STEP, _QUICK_STEP = Step(wait(0.040)), Step(wait(0.010))
_QUICK_LOADING = UnevenLoader(1, 0.010, 0.05, 0.020).build()["dataset"]
_OTHERS = ("prefetch_factor", "in_order", "pin_memory", "persistent_workers")

JOBS: tuple[Planted, ...] = (
    Planted(
        "one worker, where the step takes as many as four", UnevenLoader(1, 0.040, 0.10, 0.011).build,
        ("num_workers", *_OTHERS), kept=frozenset({"num_workers"}), at_least=4, within_s=_CLEAR_S,
    ),
    Planted(
        "two workers whose hand-off costs more than they load", _costly_hand_off,
        ("num_workers", "pin_memory"), kept=frozenset({"num_workers"}), at_most=1, within_s=_CLEAR_S,
    ),
    Planted(
        "four workers that load one at a time", _one_reader, ("num_workers", "prefetch_factor"), within_s=_NOTHING_S
    ),
    Planted(
        "a slow copy on the CPU", lambda: find_planted("copy_slow").build(length=LENGTH),
        ("pin_memory", "prefetch_factor", "in_order"), within_s=_NOTHING_S,
    ),
    Planted(
        "a step that decides, and a change that slows it", UnevenLoader(2, 0.010, 0.10, 0.020).build,
        ("num_workers", *_OTHERS), {"slower-step": {"train_step": _SLOW_STEP}},
    ),
    Planted(
        "loading and step alike: two that pay only together", UnevenLoader(1, 0.020, 0.05, 0.020).build,
        ("pin_memory",), {"quick-loading": {"dataset": _QUICK_LOADING}, "quick-step": {"train_step": _QUICK_STEP}},
        kept=frozenset({"quick-loading", "quick-step"}),
    ),
    Planted(
        # Its images are always the same, so that keeping them in memory would double its speed as well.
        "a script without workers, which double its speed", dict, ("num_workers", *_OTHERS),
        kept=frozenset({"num_workers"}), at_least=2,
        script=lambda kept: ("plain.py", str(kept.get("num_workers", 0))), within_s=60.0,
    ),
    Planted("a script that nothing helps", dict, (), script=lambda kept: ("plain.py", "2"), within_s=_NOTHING_S),
    Planted(
        "a script that decodes large photographs", dict, ("decode_small",), kept=frozenset({"decode_small"}),
        script=lambda kept: ("photographs.py", *("small" for _ in kept)), within_s=60.0,
    ),
    Planted(
        "PyTorch's tutorial on the loader, its last rung", dict, ("fetch_in_threads",),
        kept=frozenset({"fetch_in_threads"}), at_least=16, within_s=_CLEAR_S, batch=32,
        script=lambda kept: ("loader_ladder.py", "0", str(kept.get("fetch_in_threads", 0))),
    ),
    Planted(
        "four small tensors a sample, each sent alone", small_jobs.many_small_tensors, ("packed_tensors",),
        by_hand={"packed_tensors": {"collate_fn": small_jobs.InFewTensors}}, kept=frozenset({"packed_tensors"}),
        within_s=_CLEAR_S,
    ),
    Planted(
        "objects beside the tensors, which nobody reads", small_jobs.graphs_beside_features, ("leave_out",),
        by_hand={"leave_out": {"collate_fn": small_jobs.features_alone}}, kept=frozenset({"leave_out"}),
        within_s=_CLEAR_S,
    ),
    Planted(
        "a script whose loader saves its state with each batch", dict, ("snapshot_every_n_steps",),
        kept=frozenset({"snapshot_every_n_steps"}), at_least=100, within_s=_CLEAR_S,
        script=lambda kept: ("causes.py", "snapshots", *("without" for _ in kept)),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Tried:
    """A planted job that was tuned, and what plain loops say of it.

    Attributes:
        planted: The job.
        tuning: The result; None if it failed.
        realised: The gain of plain loops; None if nothing was kept that they can do.
        plain: The throughput of plain loops over the tuned job, in samples a second; None as for the gain, but that
            of the unchanged job where nothing was kept.
        failure: Why there is no tuning.
    """

    planted: Planted
    tuning: TuningResult | None
    realised: Realised | None = None
    plain: float | None = None
    failure: str = ""

    @property
    def kept(self) -> dict[str, int | str | None]:
        """The changes that were kept, with their values."""
        labels = [label for rung in self.tuning.ladder for label in rung.settings] if self.tuning else []
        split = [label.partition("=") for label in labels]
        return {name: int(value) if value.isdecimal() else value or None for name, _, value in split}

    @property
    def miss(self) -> str:
        """Return the fault; empty if there is none."""
        if self.tuning is None:
            return self.failure
        if set(self.kept) != self.planted.kept:
            return f"kept {_names(self.kept)}, right is {_names(self.planted.kept)}"
        numbers = [value for value in self.kept.values() if isinstance(value, int) and value]
        if any(not self.planted.at_least <= value <= self.planted.at_most for value in numbers):
            return f"kept {self.kept}"
        late = f"took {self.tuning.seconds:.0f} s" if self.tuning.seconds > self.planted.within_s else ""
        return "; ".join(filter(None, (self._gain_is_off(self.tuning), self._rate_is_off(self.tuning), late)))

    def _gain_is_off(self, tuning: TuningResult) -> str:
        if self.realised is None or tuning.gain is None:
            return ""
        truth = self.realised.gain
        if distance_outside(tuning.gain, truth.estimate) <= TOLERANCE * truth.estimate:
            return ""
        return f"{factor_interval(tuning.gain)}, plain loops {factor_interval(truth)}"

    def _rate_is_off(self, tuning: TuningResult) -> str:
        if self.plain is None:
            return ""
        rate = tuning.ladder[-1].rate
        if distance_outside(Interval(rate.samples_per_s, rate.low, rate.high), self.plain) <= TOLERANCE * self.plain:
            return ""
        return f"{_rate(rate)}, plain loops {self.plain:.1f}"


def _rate(rate: Rate) -> str:
    return f"{rate.samples_per_s:.1f} ({rate.low:.1f}–{rate.high:.1f})"


def _names(changes: Iterable[str]) -> str:
    return ", ".join(sorted(changes)) or "nothing"


def tune_all(jobs: Iterable[Planted] = JOBS, *, quick: bool = False) -> list[Tried]:
    """Tune each job, and run plain loops of it, unchanged and with the kept changes."""
    found = []
    for planted in jobs:
        click.echo(f"tuning {planted.name} … ", err=True, nl=False)
        found.append(_tune(planted, quick=quick))
        click.echo(found[-1].miss or "held", err=True)
    return found


def _tune(planted: Planted, *, quick: bool) -> Tried:
    if planted.script is not None:
        return _tune_script(planted, planted.script)
    own = [Change(name, _replacing(fields), alters="nothing") for name, fields in planted.own.items()]
    try:
        tuning = tune(planted.build(), try_=[*planted.tried, *own], budget=_BUDGET_QUICK_S if quick else _BUDGET_S)
    except BottleneckError as error:
        return Tried(planted, None, failure=str(error))
    kept = Tried(planted, tuning).kept
    if not kept.keys() <= {*planted.own, *planted.by_hand, *loader_argument_names()}:
        return Tried(planted, tuning)  # plain loops know nothing of what changes a train step
    changed = changed_fields(planted, kept)
    plain = plain_rate(changed)
    gained = realise(planted.build(), changed, pairs=PAIRS_QUICK if quick else PAIRS) if kept else None
    return Tried(planted, tuning, gained, plain)


def _tune_script(planted: Planted, script: Callable[[Mapping[str, Any]], tuple[str, ...]]) -> Tried:
    def seconds_per_batch(kept: Mapping[str, Any]) -> float:
        name, *arguments = script(kept)
        told = run_python((str(SCRIPTS / name), *arguments), BENCH_SECONDS=str(_SCRIPT_SECONDS))
        told.check_returncode()
        return float(json.loads(told.stdout.splitlines()[-1])["s_per_batch"])

    with tempfile.TemporaryDirectory() as folder:
        saved, (name, *arguments) = Path(folder) / "tuning.json", script({})
        tries = [word for each in planted.tried for word in ("--try", each)]
        command = ("-m", "bottleneck", "tune", "--json", str(saved), *tries, str(SCRIPTS / name), *arguments)
        done = run_python(command)
        if not saved.exists():
            return Tried(planted, None, failure=(done.stderr.splitlines() or ["nothing was said"])[-1])
        tuning = saved_from_json(saved.read_text(encoding="utf-8"))
    assert isinstance(tuning, TuningResult)
    kept = Tried(planted, tuning).kept
    if kept.keys() != planted.kept:
        return Tried(planted, tuning)
    after: list[float] = []

    def ratios() -> Iterator[float]:
        while True:
            before = seconds_per_batch({})
            after.append(seconds_per_batch(kept))
            yield before / after[-1]

    gained = enough_of(ratios(), _SCRIPT_PAIRS, TOLERANCE * (tuning.gain.estimate if tuning.gain else 1.0))
    return Tried(planted, tuning, gained if kept else None, planted.batch / statistics.median(after))


def plain_rate(fields: Fields) -> float:
    """Samples a second of a plain loop, the median of a few blocks."""
    loop = PlainLoop(fields)
    batches = batches_of_block(loop, fields, _BLOCK_S)
    paces = [loop.run_block(batches).seconds_per_batch for _ in range(_BLOCKS)]
    return float(fields["batch_size"]) / statistics.median(paces)


def _replacing(fields: Fields) -> Callable[[Pipeline], Pipeline]:
    return lambda pipeline: pipeline.replace(**fields)


def changed_fields(planted: Planted, kept: Mapping[str, int | str | None]) -> Fields:
    """The fields of the job with what was kept."""
    fields = planted.build()
    for name, value in kept.items():
        fields |= {**planted.own, **planted.by_hand}.get(name, {name: True if value is None else value})
    if not fields["num_workers"]:
        fields.pop("prefetch_factor", None)
    return fields


def tuned_table(tried: Sequence[Tried]) -> str:
    """Return the kept changes, both gains and both throughputs, in markdown."""
    rows = [
        (
            one.planted.name,
            ", ".join(name if value is None else f"{name}={value}" for name, value in one.kept.items()) or "nothing",
            factor_interval(one.tuning.gain) if one.tuning and one.tuning.gain else "–",
            factor_interval(one.realised.gain) if one.realised else "–",
            _rate(one.tuning.ladder[-1].rate) if one.tuning else "–",
            f"{one.plain:.1f}" if one.plain is not None else "–",
            f"{one.tuning.seconds:.0f} s" if one.tuning else "–",
            "**off**" if one.miss else "held",
        )
        for one in tried
    ]
    return markdown_table(("job", "kept", "gain", "of plain loops", "samples/s", "of plain loops", "took", ""), rows)


def check_tuned(tried: Sequence[Tried]) -> Check:
    """The bar on tunings."""
    missed = [one for one in tried if one.miss]
    return Check(
        "what a tuning keeps of planted changes, what it gains, and the final throughput",
        "just those that pay; gain and throughput of plain loops within the intervals widened by 3 %",
        f"{len(tried) - len(missed)} of {len(tried)}",
        not missed,
        tuple(f"{one.planted.name}: {one.miss}" for one in missed),
    )


@click.command()
@click.option("--quick", is_flag=True, help="Shorter tunings and fewer pairs.")
@click.option("--only", multiple=True, metavar="NAME", help="Only this job.")
def main(quick: bool, only: tuple[str, ...]) -> None:
    """Tune the planted jobs, and print what was found."""
    try:
        chosen = [find_by_name(JOBS, name) for name in only] or JOBS
    except KeyError as error:
        raise click.BadParameter(str(error.args[0]), param_hint="--only") from error
    tried = tune_all(chosen, quick=quick)
    check = check_tuned(tried)
    click.echo(f"{tuned_table(tried)}\n\n{check.measured}\n\n{off_list([check])}")
    sys.exit(not check.held)


if __name__ == "__main__":
    main()
