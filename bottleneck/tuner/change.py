"""A change to a job that can be tried, and what is known of the job that it is tried on."""

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
    """The job that a change would be made to, and what is known of it."""

    pipeline: Pipeline
    """With the changes that have been kept so far."""
    given: Pipeline
    """As it was before any."""
    loader: DataLoader[Any]
    """Of `pipeline`; it is never iterated."""
    device: torch.device
    cores: int
    workers_wait: bool = False
    """Whoever loads mostly waits for something else than a core, so that there may be more of them than cores."""
    workers_needed: int = 0
    """As many as would keep the step busy, if each is as fast as now; 0: not known."""
    workers_advised: int = 0
    """As many as the diagnosis of the job advises; 0: none."""
    supply: Supply = field(default_factory=Supply)
    """How its batches are made and waited for."""
    gained: Mapping[Any, float] = field(default_factory=dict)
    """Factors of throughput of the values of this change that were measured on this job."""
    start_s: float = 0.0
    """From starting the workers to their first batch."""
    epoch_s: float | None = None
    """About how long an epoch takes; None where it has no known length."""
    payload: Payload = field(default_factory=Payload)
    """What a batch of the job held as it was given."""
    advised: frozenset[str] = frozenset()
    """The ids of what the diagnosis of the job advises."""


@dataclass(frozen=True, eq=False)
class Change:
    """Something to try on a job.

    Attributes:
        name: What it is called: `--try NAME`.
        apply: Makes a changed Pipeline of one, and leaves that one as it is; with a value as its second argument where
            the change has values.
        on: What it changes.
        alters: What it may alter besides the speed: `numbers` is what is learned.
        line: What changes in the user's code, as Python: with `{value}` where there are values, and `{optimizer}` for
            the class of the job's.
        advice: Ids of the advice that it proves.
        why_not: Says why it does not apply, as the end of a sentence; None where it does.
        next_value: The next value to try, from what became of those tried on the same job; None: there is none. An
            `Excluded` is listed with its reason, and the next one asked for.
        least_s: Time without which it is not worth beginning.
        whole_epochs: It shows only over whole epochs.
        in_script: It is a setting of the process, with which the steps of an unmodified script can run. Changes to the
            loader are tried in scripts anyway.
        script_line: What changes in the user's code where it was tried in a script; empty: `line`.
        by_hand: Why it is not tried, but listed with its line where it applies, as the end of a sentence; empty where
            it is tried.
        source: A link to where it comes from.
        input_only: All that it can gain is time that the job waits for batches: it is not tried where that is little.
        step_only: All that it can gain is time of the train step: it is not tried where the job waits for batches much.
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
        """What to try next of this change, if anything; or what is not worth a try.

        Args:
            here: The job that it would be made to; the change applies there.
            judged: What became of its values on this job; of the change itself under None.
        """
        if self.next_value is None:
            return None if None in judged else Setting(self)
        value = self.next_value(here, judged)
        return value if value is None or isinstance(value, Excluded) else Setting(self, value)


@dataclass(frozen=True)
class Excluded:
    """A value that is not worth a try.

    Attributes:
        value: Of a change.
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
        """For people, such as `num_workers=4`; a value that is long in the code may have a `label`."""
        return (
            self.change.name if self.value is None else f"{self.change.name}={getattr(self.value, 'label', self.value)}"
        )

    def line(self, optimizer: str | None, *, in_script: bool = False) -> str:
        """What changes in the user's code; empty where that is not known.

        Args:
            optimizer: The class of the job's; None: it has none.
            in_script: It was tried in an unmodified script.
        """
        line = (in_script and self.change.script_line) or self.change.line
        return line.replace("{value}", str(self.value)).replace("{optimizer}", str(optimizer))

    def apply(self, pipeline: Pipeline) -> Pipeline:
        """The changed pipeline.

        Raises:
            UsageError: The change gives something else.
        """
        from bottleneck.job.pipeline import Pipeline

        changed = self.change.apply(pipeline) if self.value is None else self.change.apply(pipeline, self.value)
        if isinstance(changed, Pipeline):
            return changed
        raise UsageError(f"The change {self.change.name!r} returned a {type(changed).__name__}, not a Pipeline.")


Settings = tuple[Setting, ...]


def with_settings(settings: Settings, further: Iterable[Setting]) -> Settings:
    """The settings with others, each instead of an earlier one of the same change."""
    kept = {setting.change: setting for setting in settings}
    kept.update({setting.change: setting for setting in further})
    return tuple(kept.values())


def labels(settings: Iterable[Setting]) -> tuple[str, ...]:
    """The settings for people."""
    return tuple(setting.label for setting in settings)


def describe(tried: Settings) -> str:
    """What was tried, for people."""
    return " + ".join(labels(tried))


def needs_epochs(settings: Settings) -> bool:
    """Whether any of them shows only over whole epochs."""
    return any(setting.change.whole_epochs for setting in settings)


def build(given: Pipeline, settings: Settings) -> Pipeline:
    """The job with these settings, made from the one that was given."""
    pipeline = given
    for setting in settings:
        pipeline = setting.apply(pipeline)
    return pipeline
