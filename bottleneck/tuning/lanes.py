"""The variants of a job that are open, and what each has shown."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from bottleneck.job.pipeline import Pipeline
from bottleneck.tuning.change import Settings, build
from bottleneck.tuning.lane import Lane

OpenLane = Callable[..., Lane]


@dataclass(frozen=True)
class Shown:
    """What a lane has shown; it outlives the lane."""

    workers_wait: bool
    start_s: float
    step_s: float
    waits_share: float


class Lanes:
    """Opens lanes when they are asked for, and keeps them until others are.

    Args:
        given: The job.
        opener: Starts a variant of the job.
        budget_s: Time of the whole tuning, which limits how long a lane may take to start.
    """

    def __init__(self, given: Pipeline, opener: OpenLane, budget_s: float) -> None:
        self.base, self._open, self._budget_s = given, opener, budget_s
        self._lanes: dict[tuple[Settings, bool], Lane] = {}
        self._shown: dict[Settings, Shown] = {}
        self.setup_s: dict[Settings, float] = {}
        """The first time that they ran: what is compiled is compiled once in a process."""

    def open(self, settings: Settings, *, whole_epochs: bool) -> Lane:
        """The lane of these settings.

        Raises:
            Exception: The variant does not run, whatever the reason.
        """
        key = (settings, whole_epochs)
        if key not in self._lanes:
            self._lanes[key] = self._open(build(self.base, settings), self._budget_s, whole_epochs=whole_epochs)
            self.setup_s.setdefault(settings, self._lanes[key].setup_s)
        return self._lanes[key]

    def open_only(self, *settings: Settings, whole_epochs: bool) -> list[Lane]:
        """The lanes of these settings, and no others."""
        self.keep(*settings)
        return [self.open(each, whole_epochs=whole_epochs) for each in settings]

    def keep(self, *kept: Settings) -> None:
        """Close the lanes of all other settings."""
        with ExitStack() as closing:  # all of them, also where one fails
            for key in [key for key in self._lanes if key[0] not in kept]:
                closing.callback(self._lanes.pop(key).close)

    def close(self) -> None:
        """Close them all."""
        self.keep()

    def learn(self, settings: Settings, lane: Lane, instead: Shown | None = None) -> None:
        """Keep what a lane has shown; one of whole epochs shows nothing of how it waits."""
        self._shown[settings] = instead or Shown(lane.workers_wait, lane.first_batch_s, lane.step_s, lane.waits_share)

    def shown(self, settings: Settings) -> Shown:
        """What is known of a variant; where it failed, what is known of the job as it was given."""
        return self._shown.get(settings, self._shown[()])
