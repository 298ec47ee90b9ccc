"""A trial after the rounds: the job with one thread in each worker, in turns with the original job.

If the libraries of workers compute with more threads than there are cores, threads wait for each other. No experiment
of the ladder shows the possible gain, so it is tried for some seconds, in the running workers.
"""

from __future__ import annotations

from collections.abc import Callable

from bottleneck.loader import modes
from bottleneck.measure.bench import Bench, block_batches
from bottleneck.measure.explain_errors import job_failures
from bottleneck.measure.ladder import Arm, Ladder
from bottleneck.measure.ledger import Blocks, Ledger
from bottleneck.measure.machine.limits import usable_cores
from bottleneck.measure.rounds.turns import OrderOfArms, Turns, Visit
from bottleneck.measure.rounds.visit import Counters, visit
from bottleneck.results.evidence import ThreadTrial

_AS_IT_IS = Ladder.raw
_ONE = Arm(modes.ALL | modes.ONE_THREAD, "loader")
TRIAL_S = 5.0
_BLOCK_S = 0.25
_MIN_ROUNDS = 3
_MAX_ROUNDS = 8
_QUEUES = 2
"""Queues of batches that a visit takes besides its block."""


def may_be_worth_a_trial(bench: Bench, ledger: Ledger, cores: float | None = None) -> bool:
    """Return True if workers compute with more threads than cores."""
    threads, workers = ledger.evidence.loader.library_threads or 1, bench.loader.num_workers
    return threads >= 2 and threads * workers > (cores or usable_cores())


def is_worth_a_trial(bench: Bench, ledger: Ledger, cores: float | None = None) -> bool:
    """Return True if workers compute with more threads than cores, and a few pairs of blocks fit into a trial."""
    if not may_be_worth_a_trial(bench, ledger, cores):
        return False
    step_s = ledger.seconds_per_batch(_AS_IT_IS) or 0.0
    visit_s = _QUEUES * bench.loader.queue_length * step_s + _BLOCK_S
    return step_s > 0 and 2 * _MIN_ROUNDS * visit_s <= 2 * TRIAL_S


def try_one_thread(bench: Bench, ledger: Ledger, begin_round: Callable[[], None] = lambda: None) -> None:
    """Keep the blocks of both as evidence."""
    step_s, kept, number = ledger.seconds_per_batch(_AS_IT_IS) or 0.0, Blocks[Arm](), 0

    def take_turn(arm: Arm, again: int | None) -> Visit:
        batches = again or block_batches(arm, step_s, _BLOCK_S, bench.loader.num_workers)
        with job_failures("raw"):
            return visit(bench, arm, number, batches, Counters())

    began_s, order = bench.clock(), OrderOfArms[Arm](seed=0)
    turns = Turns(bench.clock, take_turn, left_s=lambda: TRIAL_S + began_s - bench.clock())
    for number in range(_MAX_ROUNDS):
        passed_s = bench.clock() - began_s
        if number >= _MIN_ROUNDS and passed_s * (number + 1) / number > TRIAL_S:
            break
        begin_round()
        turns.round(order.next_round((_AS_IT_IS, _ONE)), kept)
    bench.loader.rest()
    trial = ThreadTrial(as_it_is=tuple(kept.blocks[_AS_IT_IS]), one_thread=tuple(kept.blocks[_ONE]))
    ledger.note(thread_trial=trial)
