"""How samples are served of which some stages come from a recording: one class for each strategy of a plan.

All of this runs in timed blocks, once or more for each sample; what can be prepared is prepared once per mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from bottleneck.loader import modes, trees
from bottleneck.loader.record.plan import Plan, Strategy
from bottleneck.loader.record.store import RecordedItem
from bottleneck.loader.record.tape import Call, Tape
from bottleneck.loader.replay.replay import Replay, ReplayConfig, recorded_arguments
from bottleneck.loader.worker.user_code import UserCode


class MarkReplays:
    """Makes replays in which marked stages are served.

    Args:
        recorded: All recorded calls of marked stages, for samples that did not call them while they were recorded.
    """

    def __init__(self, tape: Tape, plan: Plan, recorded: Iterable[Call]) -> None:
        self._tape, self._plan = tape, plan
        self._spare: dict[str, list[Call]] = {}
        for call in recorded:
            self._spare.setdefault(call.site, []).append(call)

    def make(self, sites: Iterable[str], calls: list[Call], mode: int) -> Replay:
        """Return a replay that serves those of some sites that a mode skips."""
        served = self._plan.marks.skipped(sites, mode)
        missing = (served - {call.site for call in calls}) & self._spare.keys()
        spare = [call for site in missing for call in self._spare[site]]
        plan = self._plan
        config = ReplayConfig(served, copy_outputs=plan.copy_outputs, copy_arguments=plan.copy_arguments)
        return Replay(self._tape, [*calls, *spare], config)


class WholeSamples:
    """Strategy `fetch`: there is no cut inside a sample, which is served whole or not at all."""

    has_parts = False
    """Whether stages within a sample can be served one by one."""

    def __init__(self, user_code: UserCode, tape: Tape, plan: Plan, marks: MarkReplays) -> None:
        self._user_code, self._tape, self._plan, self._marks = user_code, tape, plan, marks
        self._run = user_code.batch if user_code.fetches_batches else user_code.item

    def keeps(self, _: Call) -> bool:
        """Whether a recorded call is needed."""
        return False

    def sample(self, item: RecordedItem) -> Any:
        return trees.copy_deep(item.value) if self._plan.copy_samples else item.value

    def way_to_serve(self, _: int) -> Callable[[RecordedItem], Any]:
        """Return what serves a sample in a mode in which nothing is loaded."""
        return self.sample

    def load(self, _mode: int, _unit: RecordedItem, index: Any) -> Any:
        """Return the sample of an index, which is loaded for real; other stages may come from a recorded sample."""
        return self._run(index)

    def next_item(self, _mode: int, _unit: RecordedItem) -> Any:
        return self._user_code.next_item()


class Replaying(WholeSamples):
    """Strategy `replay`: `__getitem__` runs, and its cuts serve their recorded outputs."""

    has_parts = True

    def __init__(self, user_code: UserCode, tape: Tape, plan: Plan, marks: MarkReplays) -> None:
        super().__init__(user_code, tape, plan, marks)
        self._configs: dict[int, ReplayConfig] = {}

    def keeps(self, _: Call) -> bool:
        return True

    def way_to_serve(self, mode: int) -> Callable[[RecordedItem], Any]:
        if not mode & modes.WITHIN_SAMPLE:
            return self.sample
        return self._way_to_serve_parts(mode)

    def _way_to_serve_parts(self, mode: int) -> Callable[[RecordedItem], Any]:
        return lambda item: self.load(mode, item, item.request)

    def load(self, mode: int, item: RecordedItem, index: Any) -> Any:
        return self._replay_of(item, mode).run(self._run, index)

    def next_item(self, mode: int, item: RecordedItem) -> Any:
        return self._replay_of(item, mode).run(self._user_code.next_item)

    def _replay_of(self, item: RecordedItem, mode: int) -> Replay:
        replay = item.replays.get(mode)
        if replay is None:
            replay = item.replays[mode] = self._make_replay(item, mode)
        return replay

    def _make_replay(self, item: RecordedItem, mode: int) -> Replay:
        if mode not in self._configs:
            self._configs[mode] = self._config(mode)
        return Replay(self._tape, item.calls, self._configs[mode])

    def _config(self, mode: int) -> ReplayConfig:
        plan, stage = self._plan, self._tape.stage
        real = frozenset(
            site for site in plan.sites if mode & (modes.AUGMENT if stage(site) == "augment" else modes.LOAD)
        )
        return ReplayConfig(
            served=plan.sites - real,
            real=real,
            copy_outputs=plan.copy_outputs,
            copy_arguments=plan.copy_arguments,
        )


class FillingTemplate(Replaying):
    """Strategy `template`: the augmentation gets its recorded arguments; its output goes into the recorded sample."""

    def keeps(self, call: Call) -> bool:
        return self._tape.stage(call.site) == "augment"

    def _way_to_serve_parts(self, _: int) -> Callable[[RecordedItem], Any]:
        return self._fill

    def _fill(self, item: RecordedItem) -> Any:
        assert item.fill is not None
        copied = self._plan.copy_arguments
        try:
            if copied:
                given = [(call.function, *recorded_arguments(call, copied)) for call in item.calls]
                outputs = [function(*args, **kwargs) for function, args, kwargs in given]
            else:
                outputs = [call.function(*call.args, **call.kwargs) for call in item.calls]
        except BaseException as error:
            raise self._user_code.failure(error, item.request) from None
        rest = trees.copy_deep(item.rest) if self._plan.copy_samples else item.rest
        return item.fill(rest, outputs)


class ReplayingMarks(Replaying):
    """Strategy `marks`: as `replay`, with the stages that the user marked; or these without the code around them."""

    def keeps(self, call: Call) -> bool:
        return call.site in self._plan.marks.sample

    def load(self, mode: int, item: RecordedItem, index: Any) -> Any:
        if mode & modes.SKIP_OTHER:
            return self._run_alone(mode, item)
        return self._replay_of(item, mode).run(self._run, item.request if mode & modes.OWN_ITEMS else index)

    def next_item(self, mode: int, item: RecordedItem) -> Any:
        return self._run_alone(mode, item) if mode & modes.SKIP_OTHER else super().next_item(mode, item)

    def _run_alone(self, mode: int, item: RecordedItem) -> Any:
        try:
            self._replay_of(item, mode).run_calls(item.calls)
        except BaseException as error:
            raise self._user_code.failure(error, item.request) from None
        return self.sample(item)

    def _make_replay(self, item: RecordedItem, mode: int) -> Replay:
        return self._marks.make(self._plan.marks.sample, item.calls, mode)


STRATEGIES: dict[Strategy, type[WholeSamples]] = {
    "fetch": WholeSamples,
    "replay": Replaying,
    "template": FillingTemplate,
    "marks": ReplayingMarks,
}
