"""`diagnose`, `load` and `compare`: a diagnosis by one call from Python. Torch is imported only to measure."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bottleneck.analysis.settings import check_price, with_price
from bottleneck.errors import PipelineError, UsageError
from bottleneck.job.target import MAX_BYTES, parse_duration
from bottleneck.measure.options import MAX_SEED, MeasureOptions, ProfileOptions, ProgressCallback
from bottleneck.results.comparison import Comparison
from bottleneck.results.records import Result

if TYPE_CHECKING:
    from bottleneck.job.pipeline import Pipeline


class Reported:
    """A record that can be rendered in every format."""

    def __str__(self) -> str:
        return self._render("text").rstrip("\n")

    def to_json(self) -> str:
        """Return JSON of version 1; that of a diagnosis includes its raw blocks, and `load` reads it."""
        return self._render("json").rstrip("\n")

    def to_markdown(self) -> str:
        """Return a report to post in a pull request."""
        return self._render("markdown")

    def to_html(self) -> str:
        """Return a report as one HTML page."""
        return self._render("html")

    def _repr_html_(self) -> str:
        """The HTML report within a notebook, in a separate frame: neither's styles and scripts reach the other."""
        return (
            f'<iframe srcdoc="{escape(self.to_html())}" sandbox="allow-scripts" title="Report of bottleneck" '
            f'style="width:100%;height:40rem;border:0"></iframe>'
        )

    def _render(self, format: str) -> str:
        from bottleneck.reports.render import render

        return render(self, format)  # type: ignore[arg-type]  # each of them is a record


@dataclass(frozen=True, repr=False)
class Diagnosis(Reported, Result):
    """A complete diagnosis. Immutable; `print` shows the report of the terminal."""

    def __repr__(self) -> str:
        first_line = self.verdict.sentence.partition("\n")[0]
        return f"<Diagnosis of {self.created}: {first_line}>"


@dataclass(frozen=True, repr=False)
class ComparedDiagnoses(Reported, Comparison):
    """Two diagnoses compared. Immutable; `print` shows the report of the terminal."""

    def __repr__(self) -> str:
        return f"<Comparison: {self.sentence}>"


@dataclass(frozen=True)
class Attempt:
    """A diagnosis that may have ended early."""

    diagnosis: Diagnosis
    """Results, be they incomplete."""
    failure: BaseException | None
    """Cause of an early end: a MeasurementError or a KeyboardInterrupt; None if complete."""
    profile_files: Mapping[str, str] = field(default_factory=dict)
    """Flamegraphs and other profiles by file name; empty if not requested, or failed."""
    traces: Mapping[str, bytes] = field(default_factory=dict)
    """Chrome traces that were requested and succeeded, compressed by gzip, by names such as `device.json.gz`."""
    leads: bool = True
    """True if it is about the whole job; on ranks other than 0 it is about a part, and not reported."""

    def write_files(
        self, flamegraph: str | os.PathLike[str] | None, trace: str | os.PathLike[str] | None
    ) -> Iterator[Path]:
        """Write the files of the profile and the traces, if there are any and a folder is given.

        Yields:
            Path of each file, once it has been written.

        Raises:
            UsageError: One of them cannot be written.
        """
        from bottleneck.results.files import write_files

        if flamegraph is not None and self.profile_files:
            yield from write_files(self.profile_files, flamegraph)
        if trace is not None and self.traces:
            yield from write_files(self.traces, trace, "traces")


def diagnose(  # noqa: PLR0913 - the options of the contract
    pipeline: Pipeline | Mapping[str, Any],
    *,
    budget: str | float | None = None,
    quick: bool = False,
    seed: int = 0,
    cache_bytes: int | None = None,
    flamegraph: str | os.PathLike[str] | None = None,
    gpu_hour_price: float | None = None,
    trace: str | os.PathLike[str] | None = None,
    cold: bool = False,
    progress: ProgressCallback | None = None,
) -> Diagnosis:
    """Measure where a training job loses time in its input pipeline.

    The caller's model, optimizer, random numbers, loader and process are left in the state in which they were found.

    Args:
        pipeline: The job, as a Pipeline or a mapping with the same keys.
        budget: Maximum duration: '90s', '2m', '1m30s' or seconds. None: as long as the job's step requires, at most
            three minutes.
        quick: Aim at 20 seconds and wider intervals.
        seed: Seed of the order of experiments and of the job's random numbers during the diagnosis.
        cache_bytes: Maximum memory of all caches together. None: as much as batches of this size require, at most a
            quarter of the free memory.
        flamegraph: A folder for flamegraphs of the workers' code; None: none are made.
        gpu_hour_price: Price of a GPU hour, in any currency; the result then says how much of it is lost.
        trace: A folder for traces of a few steps, by torch's profiler; None: none are written.
        cold: Measure also with files that are not in memory, as in the first epoch.
        progress: Called with a ProgressUpdate between blocks, never inside one.

    Raises:
        UsageError: A bad option, or a description that cannot be run (PipelineError).
        MeasurementError: The job itself failed. The error's `diagnosis` attribute has the results until then, as for
            a KeyboardInterrupt.
    """
    asked = Asked(
        budget=budget,
        quick=quick,
        seed=seed,
        cache_bytes=cache_bytes,
        flamegraph=flamegraph,
        gpu_hour_price=gpu_hour_price,
        trace=trace,
        cold=cold,
        progress=progress,
    )
    return asked.answer(attempt_diagnosis(as_pipeline(pipeline), asked.options, asked.progress))


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Arguments of `diagnose`, checked before any time is spent.

    Raises:
        UsageError: One of them is invalid.
    """

    budget: str | float | None
    quick: bool
    seed: int
    cache_bytes: int | None
    flamegraph: str | os.PathLike[str] | None
    gpu_hour_price: float | None
    trace: str | os.PathLike[str] | None
    cold: bool
    progress: ProgressCallback | None
    options: MeasureOptions = field(init=False)

    def __post_init__(self) -> None:
        from bottleneck.results.files import make_folder

        for name, folder in (("flamegraph", self.flamegraph), ("trace", self.trace)):
            if folder is None:
                continue
            if not isinstance(folder, str | os.PathLike):
                raise UsageError(f"{name} must be the path of a folder, not {folder!r}.", f"Write {name}='{name}s'.")
            # Relative to the present working directory, which the job may change.
            object.__setattr__(self, name, make_folder(folder, f"{name}s").absolute())
        if self.progress is not None and not callable(self.progress):
            raise UsageError(
                f"progress must be a function of a ProgressUpdate, not {self.progress!r}.", "Write progress=print."
            )
        if self.gpu_hour_price is not None:
            check_price(self.gpu_hour_price)
        nbytes = None if self.cache_bytes is None else _whole("cache_bytes", self.cache_bytes, minimum=1)
        options = MeasureOptions(
            budget_s=None if self.budget is None else parse_duration(self.budget),
            quick=bool(self.quick),
            seed=_whole("seed", self.seed, minimum=0, maximum=MAX_SEED),
            cache_budget_bytes=None if nbytes is None else min(MAX_BYTES, nbytes),
            profile=None if self.flamegraph is None else ProfileOptions(),
            trace=self.trace is not None,
            cold=bool(self.cold),
        )
        object.__setattr__(self, "options", options)

    def answer(self, attempt: Attempt) -> Diagnosis:
        """Write the files that were asked for, and return the diagnosis.

        Raises:
            MeasurementError: The job failed. The error's `diagnosis` attribute has the results until then, as for a
                KeyboardInterrupt.
        """
        if self.gpu_hour_price is not None:
            attempt = replace(attempt, diagnosis=with_price(attempt.diagnosis, float(self.gpu_hour_price)))
        tuple(attempt.write_files(self.flamegraph, self.trace))
        if attempt.failure is not None:
            attempt.failure.diagnosis = attempt.diagnosis  # type: ignore[attr-defined]  # the documented attribute
            raise attempt.failure
        return attempt.diagnosis


def attempt_diagnosis(pipeline: Pipeline, options: MeasureOptions, progress: ProgressCallback | None = None) -> Attempt:
    """Measure and analyse; a failure of the job comes with the results until then.

    Raises:
        PipelineError: The description cannot be run; raised before anything is measured.
    """
    from bottleneck.analysis.analyse import analyse, judge
    from bottleneck.job.checks import check
    from bottleneck.loader.clone import collect_device_garbage
    from bottleneck.measure.entry import measure

    check(pipeline)
    outcome = measure(pipeline, options, judge=judge, on_progress=progress or (lambda _: None))
    collect_device_garbage()  # the job may continue, and start its own workers
    diagnosis = Diagnosis(**vars(analyse(outcome.measurement, outcome.rank_trials)))
    return Attempt(diagnosis, outcome.failure, outcome.profile_files, outcome.traces, outcome.leads)


def load(path: str | os.PathLike[str]) -> Diagnosis:
    """Read a diagnosis that was saved as JSON.

    Raises:
        ResultFileError: The file cannot be read or contains no result of a known version.
    """
    from bottleneck.results.json import load as load_result

    return Diagnosis(**vars(load_result(path)))


def compare(base: Result, head: Result, *, force: bool = False) -> ComparedDiagnoses:
    """Compare two diagnoses: faster and slower experiments, and the new bottleneck.

    Args:
        base: The diagnosis before.
        head: The diagnosis after.
        force: Compare even if machines or pipelines differ.

    Raises:
        UsageError: Machines or pipelines differ without `force`; or an argument is not a diagnosis.
    """
    from bottleneck.analysis.comparison import compare as compare_results

    for given in (base, head):
        if not isinstance(given, Result):
            path = repr(given) if isinstance(given, str) else "path"
            raise UsageError(
                f"compare needs two diagnoses, not a {type(given).__name__}.", f"Write bottleneck.load({path})."
            )
    return ComparedDiagnoses(**vars(compare_results(base, head, force=force)))


def as_pipeline(pipeline: Any) -> Pipeline:
    """Return the pipeline itself, or the one that a mapping describes.

    Raises:
        PipelineError: Not a pipeline or mapping, or a mapping with unknown keys.
    """
    from bottleneck.job.pipeline import Pipeline

    if isinstance(pipeline, Pipeline):
        return pipeline
    if isinstance(pipeline, Mapping):
        return Pipeline.from_mapping(pipeline)
    raise PipelineError(
        f"diagnose needs a Pipeline or a mapping, not a {type(pipeline).__name__}.",
        "Write diagnose(Pipeline.from_loader(loader, model=model, ...)).",
    )


def _whole(name: str, value: Any, *, minimum: int, maximum: float = math.inf) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        upper = "or more" if math.isinf(maximum) else f"to {maximum}"
        raise UsageError(f"{name} must be a whole number, {minimum} {upper}, not {value!r}.")
    return value
