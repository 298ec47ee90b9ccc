"""The next change that a tuning tries, and the reasons why it leaves others out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch.utils.data import IterableDataset

from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import device_of
from bottleneck.measure.evidence.waits import batches_of_epoch
from bottleneck.measure.explain_errors import one_line
from bottleneck.results.format import percent
from bottleneck.results.records import Interval, Result
from bottleneck.results.tuning import NO_TIME, Outcome, Trial
from bottleneck.tuner.change import Change, Context, Excluded, Setting, Settings, build
from bottleneck.tuner.climb import Verdict
from bottleneck.tuner.judging import MIN_PAIRS
from bottleneck.tuner.lanes import Lanes
from bottleneck.tuner.ranks import Ranks
from bottleneck.tuner.supply import LITTLE, Supply, loads_by_waiting, supply_of, workers_advised, workers_needed


class Proposals:
    """The settings worth trying, from the diagnosis of the job and the blocks measured so far.

    Args:
        given: The original job.
        changes: All changes.
        lanes: The variants measured so far.
        left_s: Returns the seconds left for attempts.
        ladder_s: Returns the seconds that the ladder needs if it measures whole epochs.
        in_script: True if the train step is the loop of a script, in which nothing is changed.
    """

    def __init__(
        self,
        given: Pipeline,
        changes: Sequence[Change],
        lanes: Lanes,
        ranks: Ranks,
        *,
        left_s: Callable[[], float],
        ladder_s: Callable[[], float],
        in_script: bool = False,
    ) -> None:
        self._given = given
        self._changes = changes
        self._lanes = lanes
        self._ranks = ranks
        self._left_s = left_s
        self._ladder_s = ladder_s
        self._in_script = in_script
        self._before: Result | None = None
        self._cores = 0.0
        self._whys: dict[tuple[Change, Settings], str | None] = {}
        self._excluded: dict[tuple[Change, Any], str] = {}
        self._has_quicker_step: set[Settings] = set()
        """Settings with which a change made the step faster, even if in vain because the input is not."""
        self.epoch_s = 0.0
        """Seconds of an epoch with the settings that the last proposal was for; 0 if unknown."""

    def begin(self, before: Result, cores: float) -> None:
        """Start from the diagnosis of the original job, with these cores for each rank."""
        self._before, self._cores = before, cores

    @property
    def before(self) -> Result:
        """The diagnosis of the original job."""
        assert self._before is not None  # `begin` comes before any proposal
        return self._before

    def next_of(self, change: Change, settings: Settings, judged: Mapping[Any, Verdict]) -> Setting | None:
        """Return the next setting of a change on top of some settings, given the values judged; None if none."""
        key = (change, settings)
        if self._whys.get(key) is not None:  # building the variant again may copy a model
            return None
        here = self._context(settings, judged)
        whole_s = 2 * (1 + MIN_PAIRS) * self.epoch_s + self._ladder_s()
        has_time = (whole_s if change.whole_epochs else change.least_s) <= max(0.0, self._left_s())
        why, setting = None, None
        try:
            if key not in self._whys:
                why = self._why_not_here(change, here, settings) or change.why_not(here)
            if why is None and not change.by_hand and has_time:
                setting = self._next_setting(
                    change, here, {value: verdict.outcome for value, verdict in judged.items()}
                )
        except Exception as error:  # noqa: BLE001 - the code of a change written by the user
            why = f"it raised an error when checked: {one_line(error)}"
        self._whys[key] = self._ranks.objection(why, None if setting is None else setting.label)
        return setting if self._whys[key] is None else None

    def advised_together(self) -> Settings:
        """Return workers and threads if the diagnosis advises them as one change; empty if not."""
        workers, threads = workers_advised(self.before)
        if threads is None or not self._ranks.group.is_alone:
            return ()
        values = {"num_workers": workers, "threads": threads}
        found = tuple(Setting(each, values[each.name]) for each in self._changes if each.name in values)
        return found if len(found) == len(values) else ()

    def by_promise(self, changes: Sequence[Change], best: Settings) -> Iterable[Change]:
        """Order changes by promise: first those to the limiting side of the best variant, as advised, then quick ones.

        A short budget may end before what is tried in any job.
        """
        waits = self._lanes.stats(best).waits
        advised = [item.id for item in self.before.advice]

        def promise(change: Change) -> tuple[bool, int, float]:
            place = min((advised.index(id_) for id_ in change.advice if id_ in advised), default=len(advised))
            return (change.on == "step") == waits, place, change.least_s

        return sorted(changes, key=promise)

    def predicted(self, change: Change) -> Interval | None:
        """Return the gain that the diagnosis promises for a change; None if it promises none."""
        gains = [each.gain for each in self.before.advice if each.id in change.advice and each.gain is not None]
        return max(gains, key=lambda each: each.estimate, default=None)

    def note_quicker_step(self, settings: Settings) -> None:
        """Note that a change made the step of a variant faster: its input may cost more then, and is worth changes."""
        self._has_quicker_step.add(settings)
        self._whys = {key: why for key, why in self._whys.items() if not (key[0].input_only and key[1] == settings)}

    def untried(
        self, trials: Sequence[Trial], next_of: Callable[[Change], Setting | None]
    ) -> Iterator[tuple[Setting, Outcome, str]]:
        """Yield each change that no trial has tried, and each value for which there was no time, with the reason."""
        tried = {trial.setting for trial in trials}
        attempted = {name for trial in trials for name in trial.changes}
        for (change, value), why in self._excluded.items():
            setting = Setting(change, value)
            if setting.label not in tried:
                yield setting, "not_applicable", why
                tried.add(setting.label)
        for change in self._changes:
            left = next_of(change) if change.name in attempted else Setting(change)
            if left is None or left.label in tried:
                continue
            whys = [why for (other, _), why in self._whys.items() if other is change]
            if whys and None not in whys:
                yield left, "not_applicable", whys[-1] or ""
            else:
                yield left, "not_tried", change.by_hand or NO_TIME

    def _next_setting(self, change: Change, here: Context, outcomes: dict[Any, Outcome]) -> Setting | None:
        """Return the next setting of a change; values that the model excludes are noted and skipped."""
        proposed = change.propose(here, outcomes)
        while isinstance(proposed, Excluded):
            self._excluded[change, proposed.value] = proposed.why
            outcomes[proposed.value] = "dropped"
            proposed = change.propose(here, outcomes)
        return proposed

    def _why_not_here(self, change: Change, here: Context, settings: Settings) -> str | None:
        if change.input_only:
            return self._input_costs_little(here.supply, settings)
        if change.on == "loader" or (self._ranks.group.is_alone and not self._in_script) or change.in_script:
            return here.supply.why_not_step(on_cpu=here.device.type == "cpu") if change.step_only else None
        if not self._in_script:
            return "a job of several ranks keeps its train step: try it in one process"
        return "the script's loop itself is not changed: change it there, or tune a job that a function describes"

    def _input_costs_little(self, supply: Supply, settings: Settings) -> str | None:
        """Return why no change to the input alone is worth trying; None if one may be."""
        if settings in self._has_quicker_step:
            return None
        verdict = None if settings else self.before.verdict
        if verdict is not None and verdict.state == "input_bound":  # even if workers slow down the step
            return None
        if verdict is not None and verdict.state == "device_bound" and verdict.headroom is not None:
            lost = 1 - 1 / verdict.headroom.high
            return f"the whole input costs this job at most {percent(lost)}" if lost < LITTLE else None
        return supply.why_not_input()

    def _context(self, settings: Settings, judged: Mapping[Any, Verdict]) -> Context:
        pipeline = build(self._given, settings)
        loader = pipeline.make_loader()
        known = self._lanes.stats(settings)
        given = self._lanes.stats(())
        before = self.before
        counts = loader.batch_size is not None and not isinstance(loader.dataset, IterableDataset)
        batches = batches_of_epoch(loader) if counts else None
        self.epoch_s = self._ranks.most((batches or 0) * known.step_s)
        return Context(
            pipeline,
            self._given,
            loader,
            device_of(pipeline),
            cores=max(1, int(self._cores)),
            workers_wait=known.waits and loads_by_waiting(before, given),
            workers_needed=self._ranks.most(workers_needed(known, loader.num_workers)),
            workers_advised=workers_advised(before)[0],
            supply=supply_of(known, loader.num_workers, before, given, self._cores),
            gained={value: each.factor for value, each in judged.items() if each.factor is not None},
            start_s=known.first_batch_s,
            epoch_s=self.epoch_s or None,
            payload=before.evidence.payload,
            advised=frozenset(item.id for item in before.advice),
        )
