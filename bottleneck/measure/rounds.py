"""Visit every arm in every round, until the estimates are precise or the time is up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bottleneck.errors import BottleneckError
from bottleneck.measure.arms import Arm, Ladder
from bottleneck.measure.blocks import Bench
from bottleneck.measure.describe import describe_arm
from bottleneck.measure.environment import OtherLoad
from bottleneck.measure.evidence import StorageReads
from bottleneck.measure.failure import came_from_loader, explain_loader_failure, explain_step_failure, nothing_to_load
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.schedule import (
    MIN_ROUNDS,
    SHORTEST_BLOCK_S,
    Lengths,
    OrderOfArms,
    Pace,
    find_deadline_s,
    plan_round,
    rounds_to_decide_first,
)
from bottleneck.results.records import Block, Judgement, Measurement
from bottleneck.staging.loader import LoaderEnded

Judge = Callable[[Measurement], Judgement]
Tell = Callable[..., None]

_MOST_ROUNDS = 10_000
_OTHER_LOAD_CORES = 0.2
"""Cores that other processes may keep busy before the numbers are in doubt."""


class Rounds:
    """The measuring proper.

    Args:
        bench: Runs the job in any arm.
        ladder: What is measured.
        ledger: Receives the blocks.
        options: Budget and seed.
        judge: Says of the blocks so far whether they suffice.
        tell: Reports progress: (phase, arm=, rounds=, judgement=).
        started_s: When the diagnosis began, by the bench's clock.
    """

    def __init__(
        self,
        bench: Bench,
        ladder: Ladder,
        ledger: Ledger,
        options: MeasureOptions,
        judge: Judge,
        tell: Tell,
        started_s: float,
    ) -> None:
        self._bench, self._ladder, self._ledger = bench, ladder, ledger
        self._options, self._judge, self._tell = options, judge, tell
        self._started_s = started_s
        self._clock = bench.clock
        self._workers = bench.loader.num_workers
        self._paces: dict[Arm, Pace] = {}
        self._round = 0
        self._full_rounds = 0
        self._judgement: Judgement | None = None
        self._other_load = OtherLoad()
        self.reads = StorageReads()

    def run(self) -> None:
        """Measure.

        Raises:
            MeasurementError: The user's code failed, or a worker.
        """
        self._other_load.start()
        self.reads.start(self._bench.loader.workers)
        deciding, full = OrderOfArms(self._options.seed), OrderOfArms(self._options.seed + 1)
        for arm in full.next_round(self._ladder.arms()):
            self._try_out(arm)
        deadline_s = find_deadline_s(
            self._ladder, self._paces, self._workers, started_s=self._started_s, now_s=self._clock(),
            budget_s=self._options.budget_s, quick=self._options.quick,
        )  # fmt: skip
        narrow_left = rounds_to_decide_first(self._ladder, self._plan(deadline_s), deadline_s - self._clock())
        while True:
            self._round += 1
            ends = (self._ladder.device, self._ladder.raw)
            if narrow_left > 0:
                narrow_left -= 1
                self._run_round(deciding.next_round(ends), deadline_s)
            else:
                self._run_round(full.next_round(self._ladder.arms()), deadline_s)
                self._full_rounds += 1
            self._judgement = self._judge(self._ledger.measurement())
            if narrow_left == 0 and self._is_enough(deadline_s):
                break
        self._note_other_load()

    def _plan(self, deadline_s: float) -> Lengths:
        return plan_round(
            self._ladder, self._paces, self._workers, left_s=max(0.0, deadline_s - self._clock()),
            rounds_done=self._full_rounds, quick=self._options.quick,
        )  # fmt: skip

    def _run_round(self, arms: list[Arm], deadline_s: float) -> None:
        lengths = self._plan(deadline_s)
        for arm in arms:
            late = self._clock() + lengths.seconds[arm] > deadline_s
            # Two rounds of device and raw are the least that says anything at all.
            if late and not (self._round <= 2 and arm in (self._ladder.device, self._ladder.raw)):
                continue
            self._tell("measuring", arm=arm, round_=self._round, rounds=self._planned(), judgement=self._judgement)
            self._visit(arm, lengths.batches[arm])

    def _planned(self) -> int:
        return max(self._round, MIN_ROUNDS)

    def _is_enough(self, deadline_s: float) -> bool:
        if self._clock() >= deadline_s or self._round > _MOST_ROUNDS:
            return True
        lengths = self._plan(deadline_s)
        if self._clock() + min(lengths.seconds.values()) > deadline_s:
            return True
        return self._full_rounds >= MIN_ROUNDS and self._judgement is not None and self._judgement.precise

    # --- one visit -----------------------------------------------------------------------------------------

    def _try_out(self, arm: Arm) -> None:
        """Run an arm for a moment, to know how long its blocks take."""
        self._tell("trying out", arm=arm)
        block, preparing_s = self._run_block(arm, max(1, self._workers) if arm.mode is not None else 2)
        self._paces[arm] = Pace(block.seconds / block.batches, preparing_s)
        if block.seconds >= SHORTEST_BLOCK_S:
            # Of a slow job every batch is dear: this was a block like any other.
            self._ledger.add(arm, block)
        else:
            self._bench.waits_s.pop(arm, None)

    def _visit(self, arm: Arm, batches: int) -> None:
        block, preparing_s = self._run_block(arm, batches)
        self._ledger.add(arm, block)
        self._paces[arm] = self._paces[arm].updated(block.seconds / block.batches, preparing_s)
        for cache in {id(c): c for c in (self._bench.host, self._bench.device)}.values():
            if cache.changed_since_probe():
                cache.clones = True
                self._ledger.warn(
                    "batch-changed-in-place",
                    "The train step changed a cached batch in place after a while; from then on each is cloned. "
                    "Make the step copy before it works in place, and measure again.",
                )

    def _run_block(self, arm: Arm, batches: int) -> tuple[Block, float]:
        """Return a block of an arm, and the seconds that its preparation took."""
        with self._failures(arm):
            started = self._clock()
            self._bench.prepare(arm)
            preparing_s = self._clock() - started
            before = self.reads.read()
            block = self._bench.measure(arm, self._round, batches)
            self.reads.add(arm, before, block.samples)
        return block, preparing_s

    @contextmanager
    def _failures(self, arm: Arm) -> Iterator[None]:
        """Tell failures of the user's step from failures of the loader."""
        name = describe_arm(arm, self._ladder)
        try:
            yield
        except BottleneckError:
            raise
        except LoaderEnded as error:
            raise nothing_to_load() from error
        except (Exception, SystemExit) as error:
            if came_from_loader(error):
                raise explain_loader_failure(error, name) from error
            raise explain_step_failure(error, name) from error

    def _note_other_load(self) -> None:
        cores = self._other_load.stop()
        self._ledger.evidence["other_load_cores"] = cores
        if cores > _OTHER_LOAD_CORES:
            self._ledger.warn(
                "other-load",
                f"Other processes kept {cores:.1f} cores busy during the diagnosis; the job might be faster on a "
                "quiet machine. Stop them, or measure again when they are done.",
            )
