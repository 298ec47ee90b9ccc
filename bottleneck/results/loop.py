"""Observations of a script's own loop, and of its work between two epochs."""

from __future__ import annotations

from dataclasses import dataclass

from bottleneck.results.samples import LineSeen
from bottleneck.results.values import Count, Quantity, left_out


@dataclass(frozen=True, kw_only=True)
class OtherLoader:
    """A loader that a script's loop iterates besides the one that was varied; times are sums over the loop's steps."""

    dataset: str | None = None
    path: str | None = None
    """File in which it is made, relative to the working directory; None if uncertain."""
    line: Count | None = None
    num_workers: Count | None = None
    persistent_workers: bool | None = None
    passes: Count | None = None
    evaluations: Count | None = None
    """Passes in which no optimizer made a step."""
    evaluating_s: Quantity | None = None
    """Time of all these passes, with the computation in them."""
    starting_s: Quantity | None = None
    """Time for making its iterators, waiting for the first batch of each, and ending the workers."""
    waiting_s: Quantity | None = None
    """Time of waiting for the other batches."""
    first_s: Quantity | None = None
    """Time of waiting for the first batch of each pass, a part of the start."""
    later_batches: Count | None = None
    """Number of the other batches."""
    loaders: Count | None = None
    """Objects over this dataset that were iterated: more than one where the loop makes it again."""
    is_training_set: bool | None = left_out()
    """It goes over the dataset that is trained on."""
    every: Count | None = left_out()
    """By the source, there is a pass in each n-th epoch only."""


@dataclass(frozen=True, kw_only=True)
class BetweenEpochs:
    """Work of a script from the end of an epoch to the beginning of the next, before the diagnosis feeds its loop."""

    ends: Count | None = None
    """Ends that were seen; 0 if an epoch was too long to wait for, None if the loop is in no other loop."""
    batches: Quantity | None = None
    """Batches of one of these epochs; this and the following are means over them."""
    seconds: Quantity | None = None
    """From the end of an epoch to the beginning of the next."""
    each_epoch_share: Quantity | None = None
    """The part of it, without evaluations, that comes in each epoch: work in each n-th epoch counts as its
    n-th part."""
    saves: Count | None = None
    """Files that were saved, in all."""
    saving_s: Quantity | None = None
    others: tuple[OtherLoader, ...] = ()
    """The loaders that were iterated then; times are sums over the ends."""
    path: str | None = None
    """The first statement between two epochs that calls anything, if no end was seen."""
    line: Count | None = None
    skip_steps: Count | None = None
    """Steps of training before measuring that would show an end, if none was seen."""


@dataclass(frozen=True, kw_only=True)
class LoopSeen:
    """Work of a script's own loop on a batch that is already on the device, in host time: means."""

    batches: Count | None = None
    until_optimizer_s: Quantity | None = None
    """Until its optimizers step, between them, and in a closure that one calls; of a batch without a step all of its
    time."""
    optimizer_s: Quantity | None = None
    after_optimizer_s: Quantity | None = None
    """Time from the last step of an optimizer until the loop requests the next batch."""
    batch_s: Quantity | None = left_out()
    """Time of all that, if the parts are unknown: the loop takes its next batch before it trains on the last one."""
    other_loaders_s: Quantity | None = None
    """Time of waiting for other loaders in all that, which are not varied."""
    restarts: Count | None = None
    """Passes before the diagnosis that started workers for a single batch each; None unless all did."""
    restarting_step_s: Quantity | None = None
    """Shortest time from the beginning of one of these passes to that of the next."""
    steps: Count | None = None
    """Batches of all experiments that it got, over which the following sums extend."""
    others: tuple[OtherLoader, ...] = ()
    saves: Count | None = None
    """Number of files that it saved."""
    saving_s: Quantity | None = None
    input_s: Quantity | None = None
    """Time per batch, from the batch to the first call of the model, in some steps outside of the timed blocks."""
    watched_s: Quantity | None = None
    """Duration of each of these steps."""
    after_device_s: Quantity | None = None
    """Duration of each of them after the device had done the optimizer's step."""
    hooked: Count | None = None
    """Modules of the model with hooks that are not part of it."""
    hooks_s: Quantity | None = None
    """Time of these hooks in each step."""
    lines: tuple[LineSeen, ...] = ()
    """The costliest lines of a part of these steps, which is their `stage`: `input`, `step` or `after`. Of what comes
    between two epochs they are statements: of evaluations (`evaluating`), and of all else (`between`)."""
    between: BetweenEpochs = left_out(BetweenEpochs())
