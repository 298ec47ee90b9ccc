"""Warnings of a measured job that differs from training, or that wastes its time."""

from __future__ import annotations

from collections.abc import Sequence

from bottleneck.results.format import plural, size
from bottleneck.results.records import Warning


def dataset_keeps_samples(cache: str, *, began_again: bool) -> Warning:
    """Warn of a dataset that may cache samples in each worker.

    Args:
        cache: The attribute that grows.
        began_again: True if a second epoch was measured as well.
    """
    when = "these numbers are of neither alone" if began_again else "these numbers are of the first"
    return Warning(
        "dataset-keeps-samples",
        f"{cache} of the dataset grows from batch to batch. If it keeps samples for later, the first epochs are slower "
        f"than the others, and {when}: each worker has a separate copy to fill. Load everything once before the "
        "workers start, or measure without it.",
    )


def duplicated_stream(workers: int, compared: int) -> Warning:
    """Warn of workers whose streams begin with the same samples; `compared` is the number of these."""
    return Warning(
        "duplicated-stream",
        f"{workers} workers yield the same samples: their streams begin with the same {compared}, so "
        "that the job trains on each sample several times in an epoch. Let __iter__ of the dataset give each "
        "worker a separate part, by torch.utils.data.get_worker_info(): "
        "itertools.islice(stream, worker.id, None, worker.num_workers).",
    )


def warm_reads(dataset_bytes: float, memory_bytes: float) -> Warning:
    """Warn of files that came from memory, although the dataset does not fit there."""
    return Warning(
        "warm-reads",
        f"raw found its files in memory, from an earlier run, but the dataset, of about {size(dataset_bytes)}, "
        f"does not fit into {size(memory_bytes)}: an epoch of real training reads from the disk and is slower. "
        "Measure that too, with --cold.",
    )


def new_shapes_in_blocks(
    blocks: int, *, compiled: int, compiling: int, retries: int, segments: int, growing: int, tried: int
) -> Warning:
    """Warn of timed blocks that include costs of new shapes. Counts that are zero are not mentioned.

    Args:
        blocks: Timed blocks with fresh batches.
        compiled: Graphs compiled.
        compiling: Blocks in which that happened.
        retries: Times that the allocator found no memory; if there are any, its growth is not mentioned.
        segments: Times that the allocator took memory.
        growing: Blocks in which that happened.
        tried: Shapes for which cuDNN tried its algorithms.
    """
    parts = []
    if compiled:
        parts.append(f"torch.compile compiled {plural(compiled, 'graph')} in {plural(compiling, 'block')}")
    if retries:
        parts.append(
            f"the allocator ran out of memory {plural(retries, 'time')} and released its cache, which stalls the device"
        )
    elif growing:
        parts.append(
            f"the allocator took memory from the device {plural(segments, 'time')}, in {plural(growing, 'block')}"
        )
    if tried:
        parts.append(f"cudnn.benchmark tried its algorithms for {plural(tried, 'new shape')}")
    return Warning(
        "new-shapes-in-blocks",
        f"In the {blocks} timed blocks with fresh batches (raw, without X and the ladder down to "
        f"after_collate) {'; '.join(parts)}. That time is in these blocks but not in `device` and `host`, whose "
        "shapes were met while warming up, so the report counts it as loading, which it is not. A longer --budget "
        "meets fewer new shapes towards its end; batches padded to a few sizes, or torch.compile(..., "
        "dynamic=True), avoid it in the job as well.",
    )


def batch_changed_in_place(changing: Sequence[str], experiments: Sequence[str]) -> Warning:
    """Warn of batches that are cloned for each step from the beginning.

    Args:
        changing: The parts of the job that change them, such as 'train step'.
        experiments: The experiments that pay for the clones.
    """
    change = "changes its" if len(changing) == 1 else "change their"
    cloned = " and ".join(f"`{experiment}`" for experiment in experiments)
    return Warning(
        "batch-changed-in-place",
        f"The {' and the '.join(changing)} {change} batch in place, so cached batches are cloned for each step; the "
        f"cost of the clone is part of {cloned}.",
    )


def batch_changed_later() -> Warning:
    """Warn of batches that the step changed only after a while."""
    return Warning(
        "batch-changed-in-place",
        "The train step changed a cached batch in place after a while; since then, each batch is cloned. "
        "Make the step copy before it works in place, and measure again.",
    )


def loss_not_finite(blocks: int, of_blocks: int, first_round: int, experiment: str) -> Warning:
    """Warn of blocks at whose end the loss was not finite.

    Args:
        blocks: Their number.
        of_blocks: Number of all blocks with the train step.
        first_round: Round of the first of them.
        experiment: Experiment of the first of them.
    """
    return Warning(
        "loss-not-finite",
        f"The loss was not finite at the end of {_blocks(blocks, of_blocks, first_round, experiment)}. The diagnosis "
        "trains on few batches, which may be the cause; but such steps may be faster or slower than others, and a "
        "gradient scaler skips the optimizer's part of them. Check that the loss of the job itself is finite, or "
        "diagnose with a smaller learning rate.",
    )


def steps_skipped(blocks: int, of_blocks: int, first_round: int, experiment: str) -> Warning:
    """Warn of blocks in which a gradient scaler skipped steps. Args: as above."""
    return Warning(
        "steps-skipped",
        f"The gradient scaler lowered its scale in {_blocks(blocks, of_blocks, first_round, experiment)}: it skipped "
        "the optimizer's part of those steps, which makes them faster. Begin with a smaller init_scale, such as the "
        "job's after its first steps, or use bfloat16, which needs no scaler.",
    )


def _blocks(blocks: int, of_blocks: int, first_round: int, experiment: str) -> str:
    where = f"first in round {first_round}, experiment {experiment}"
    return f"{blocks} of {of_blocks} blocks with the train step, {where}"


def fitting_threads(workers: int, cores: float) -> int:
    """Return the threads of a train step on the CPU for which workers leave cores."""
    return max(1, int(cores) - workers)


def threads_share_cores(threads: int, workers: int, cores: float) -> Warning:
    """Warn of a train step on the CPU that has too many threads for the workers beside it."""
    return Warning(
        "threads-share-cores",
        f"The train step runs on the CPU with {threads} threads, next to {workers} worker(s) on {cores:g} "
        "cores, so that its threads wait for each other. Call torch.set_num_threads("
        f"{fitting_threads(workers, cores)}) before the diagnosis and in the job.",
    )


def one_rank_of_many(launched: tuple[str, int] | None, devices: tuple[int, int] | None) -> Warning:
    """Warn of one process that was diagnosed alone.

    Args:
        launched: A variable of its environment, and the number of processes that it says; None if there is none.
        devices: Numbers of used and of visible devices; None if it uses all of them.
    """
    signs = [] if launched is None else [f"{launched[0]} says {launched[1]} processes"]
    if devices is not None:
        signs.append(f"it uses {devices[0]} of {devices[1]} visible devices")
    return Warning(
        "one-rank-of-many",
        f"This process was diagnosed alone, although {' and '.join(signs)}. No number includes the use of the "
        "same cores, disk and network by other processes, or the cost of sharing gradients with them; a loader "
        "that is fast enough alone may be too slow when the others run. Give it its share of the cores "
        "(taskset -c), and measure while the others run.",
    )


def input_in_loop(called: Sequence[str]) -> Warning:
    """Warn of a loop that transforms its batches.

    Args:
        called: Functions that it calls on parts of them; none if it makes its tensors itself.
    """
    does = "gets batches without a tensor, and makes its tensors itself"
    if called:
        does = f"calls {' and '.join(f'{name}()' for name in called)} on parts of its batch"
    return Warning(
        "input-in-loop",
        f"The loop {does}: what it does with them before it trains is part of compute. In the "
        "dataset or the collate function, it would be measured as input, and workers would do it.",
    )


def copy_not_seen(why: str) -> Warning:
    """Warn that a loop's copy to the device is not a stage."""
    return Warning("copy-not-seen", f"There is no stage `copy`: {why}. What the loop copies is part of compute.")


def several_loaders(others: Sequence[str], choices: Sequence[str]) -> Warning:
    """Warn of a loop that takes batches from several loaders.

    Args:
        others: The datasets of those that were not varied.
        choices: Names of all loaders, as --loader knows them.
    """
    return Warning(
        "several-loaders",
        f"The loop takes batches from other loaders as well ({', '.join(others)}), which were not varied: their cost "
        f"is in compute. --loader (in Python: loader) chooses: {', '.join(choices)}. To measure all of them as one, "
        "loop over bottleneck.watch(zip(...)).",
    )


def loop_breaks_off() -> Warning:
    """Warn of a loop whose interruptions cannot be left out of blocks."""
    return Warning(
        "loop-breaks-off",
        "The script's loop ends an epoch, evaluates or restarts a loader every few batches, inside timed blocks; "
        "that time counts as part of the step. Let it train in longer epochs.",
    )


def workers_for_each_batch() -> Warning:
    """Warn of a loop whose workers start for each batch."""
    return Warning("workers-for-each-batch", f"{NEW_WORKERS}.")


NEW_WORKERS = (
    "The loop begins a new pass over its loader for each batch, and its workers start again each time: the script is "
    "slower than what was measured, in which they go on. Take the iterator once, batches = forever(loader) with "
    "def forever(loader): while True: yield from loader, then next(batches) in the loop"
)
"""Beginning of a sentence, which the verdict on such a loop has as well."""
