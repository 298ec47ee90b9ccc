"""Changes that a tuning can try, and the facts about the job that decide which of them apply."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bottleneck.errors import UsageError
from bottleneck.results.evidence import Payload
from bottleneck.results.tuning import Alters, ChangeOn, Outcome
from bottleneck.tuner.supply import Supply

if TYPE_CHECKING:
    import torch
    from torch.utils.data import DataLoader

    from bottleneck.job.pipeline import Pipeline


@dataclass(frozen=True)
class Context:
    """The job that a change would be applied to, and the facts known about it."""

    pipeline: Pipeline
    """The job with the changes kept so far."""
    given: Pipeline
    """The original job."""
    loader: DataLoader[Any]
    """The loader of `pipeline`; never iterated."""
    device: torch.device
    cores: int
    workers_wait: bool = False
    """True if loading mostly waits for something other than a core, so that more workers than cores can help."""
    workers_needed: int = 0
    """Workers that would keep the step busy at their present speed; 0 if unknown."""
    workers_advised: int = 0
    """Workers that the diagnosis of the job advises; 0 if none."""
    supply: Supply = field(default_factory=Supply)
    """Model of the workers and their queue."""
    gained: Mapping[Any, float] = field(default_factory=dict)
    """Factors of throughput measured on this job, by value of the change."""
    start_s: float = 0.0
    """Seconds from starting the workers to their first batch."""
    epoch_s: float | None = None
    """Estimated seconds per epoch; None if its length is unknown."""
    payload: Payload = field(default_factory=Payload)
    """Contents of a batch of the original job."""
    advised: frozenset[str] = frozenset()
    """Ids of the advice in the job's diagnosis."""


@dataclass(frozen=True, eq=False)
class Change:
    """A change to try on a job.

    Attributes:
        name: Name for `--try NAME`.
        apply: Function from a Pipeline to a changed one, which leaves the original alone; gets a value as its second
            argument if the change has values.
        on: Part of the job that is changed.
        alters: Aspect that may change besides the speed; `numbers` stands for learning.
        line: Python for the user's code, with `{value}` for the value, and `{optimizer}` for the class of the job's
            optimizer.
        advice: Ids of the advice that the change proves.
        why_not: Returns the reason why the change does not apply, as the end of a sentence; None if it applies.
        next_value: Returns the next value to try from the outcomes of those tried on the same job; None if there are
            none left. An `Excluded` is listed with its reason, and the next value is requested.
        least_s: Minimum time [s] left for the change to be tried.
        whole_epochs: True if the effect shows only over whole epochs.
        in_script: True for a setting of the process that can hold during the steps of an unmodified script. Changes to
            the loader are always tried in scripts.
        script_line: Python for the user's code if tried in a script; empty: `line`.
        by_hand: Reason why the change is listed with its line but not tried, as the end of a sentence; empty if it is
            tried.
        source: Link to where the change comes from.
        input_only: True if it can only shorten the wait for batches; not tried if the job hardly waits.
        step_only: True if it can only shorten the train step; not tried if the job waits for batches much of the time.
    """

    name: str
    apply: Callable[..., Pipeline]
    on: ChangeOn = "loader"
    alters: Alters = "numbers"
    line: str = ""
    advice: tuple[str, ...] = ()
    why_not: Callable[[Context], str | None] = lambda _: None
    next_value: Callable[[Context, Mapping[Any, Outcome]], Any] | None = None
    least_s: float = 0.0
    whole_epochs: bool = False
    in_script: bool = False
    script_line: str = ""
    by_hand: str = ""
    source: str = ""
    input_only: bool = False
    step_only: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise UsageError(f"A change needs a name, not {self.name!r}.", "Write Change('half-size', apply=half).")
        if not callable(self.apply):
            raise UsageError(
                f"apply of the change {self.name!r} cannot be called.",
                f"Write Change({self.name!r}, apply=lambda pipeline: pipeline.replace(batch_size=64)).",
            )

    def propose(self, here: Context, judged: Mapping[Any, Outcome]) -> Setting | Excluded | None:
        """Return the next setting to try, or a value that is excluded; None if there is nothing left.

        Args:
            here: The job, to which the change applies.
            judged: Outcomes on this job by value; a change without values has its outcome under None.
        """
        if self.next_value is None:
            return None if None in judged else Setting(self)
        value = self.next_value(here, judged)
        return value if value is None or isinstance(value, Excluded) else Setting(self, value)


@dataclass(frozen=True)
class Excluded:
    """A value of a change that is not worth trying.

    Attributes:
        value: The value.
        why: The reason, as the end of a sentence.
    """

    value: Any
    why: str


@dataclass(frozen=True)
class Setting:
    """A change with its value, if it has values."""

    change: Change
    value: Any = None

    @property
    def label(self) -> str:
        """Name for people, such as `num_workers=4`; a value may define its own `label`."""
        if self.value is None:
            return self.change.name
        return f"{self.change.name}={getattr(self.value, 'label', self.value)}"

    def line(self, optimizer: str | None, *, in_script: bool = False) -> str:
        """Return the changed lines of the user's code; empty if unknown.

        Args:
            optimizer: Class of the job's optimizer; None if it has none.
            in_script: True if tried in an unmodified script.
        """
        line = (in_script and self.change.script_line) or self.change.line
        return line.replace("{value}", str(self.value)).replace("{optimizer}", str(optimizer))

    def apply(self, pipeline: Pipeline) -> Pipeline:
        """Return the changed pipeline.

        Raises:
            UsageError: The change returned something else.
        """
        from bottleneck.job.pipeline import Pipeline

        changed = self.change.apply(pipeline) if self.value is None else self.change.apply(pipeline, self.value)
        if isinstance(changed, Pipeline):
            return changed
        raise UsageError(f"The change {self.change.name!r} returned a {type(changed).__name__}, not a Pipeline.")


Settings = tuple[Setting, ...]


def with_settings(settings: Settings, further: Iterable[Setting]) -> Settings:
    """Return the settings with further ones, which replace earlier ones of the same change."""
    kept = {setting.change: setting for setting in settings}
    kept.update({setting.change: setting for setting in further})
    return tuple(kept.values())


def labels(settings: Iterable[Setting]) -> tuple[str, ...]:
    """Return the labels of settings."""
    return tuple(setting.label for setting in settings)


def describe(tried: Settings) -> str:
    """Return the labels of settings that were tried together, as one text."""
    return " + ".join(labels(tried))


def needs_epochs(settings: Settings) -> bool:
    """Return True if the effect of any setting shows only over whole epochs."""
    return any(setting.change.whole_epochs for setting in settings)


def build(given: Pipeline, settings: Settings) -> Pipeline:
    """Return the job with these settings applied to the original one."""
    pipeline = given
    for setting in settings:
        pipeline = setting.apply(pipeline)
    return pipeline
