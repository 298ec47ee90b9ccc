"""Warnings of stages that were cut differently, or that could not be served."""

from __future__ import annotations

from collections.abc import Sequence

from bottleneck.results.records import Warning

# --- cuts that were found -----------------------------------------------------------------------------------


def cut_not_used(cut: str, why: str) -> Warning:
    """Warn of a cut that cannot be used."""
    return Warning("cut-not-used", f"`{cut}` is not used as a cut: {why}.")


def no_cut_used(why: str) -> Warning:
    """Warn of a dataset that is not cut although it could be."""
    return Warning("cut-not-used", f"__getitem__ is measured as one stage, `fetch`: {why}.")


def cut_not_called(cut: str, items: int) -> Warning:
    """Warn of a cut that the user named, and that none of the recorded items called."""
    return Warning(
        "cut-not-called",
        f"`{cut}`, which augment= names, recorded nothing: the dataset did not call it for any of {items} recorded "
        "items.",
    )


def cut_changes_its_argument(cut: str, copy_s: float) -> Warning:
    """Warn of an augmentation that works in place; `copy_s` is the time of a copy of its argument."""
    return Warning(
        "cut-changes-its-argument",
        f"`{cut}` changes its argument in place and gets a copy each time it is measured; that copy takes "
        f"{1e3 * copy_s:.2g} ms a call, as part of the stage `augment`.",
    )


def rest_counts_as_load(share: float) -> Warning:
    """Warn of code after the augmentation that takes that share of a sample's time."""
    return Warning(
        "rest-counts-as-load",
        f"What the dataset does after its augmentation takes {share:.0%} of the time of a sample "
        "and counts as `load`. To measure each part separately, mark the functions that do it: "
        '@bottleneck.stage("finish").',
    )


def lazy_values(value: str, stage: str) -> Warning:
    """Warn of a value, such as 'an image (PIL)', that is read when a later stage uses it."""
    return Warning(
        "lazy-values",
        f"A sample holds {value}, which is read or decoded on first use, in `{stage}`. So `{stage}` contains "
        "work that looks like loading; data that was read before comes from memory. To see it separately, "
        'read it in the code that loads it: `.convert("RGB")` for an image, `np.array(...)` for an array.',
    )


def lazy_values_recorded(value: str) -> Warning:
    """Warn of a value that the recording had to read."""
    return Warning(
        "lazy-values",
        f"A sample holds {value}, which cannot be recorded without reading it. Recorded values are read "
        "already: reading or decoding counts as loading, and is missing in the gain of the stage that does it "
        "in the job. Read the values in the code that loads them, and measure again.",
    )


# --- marked stages ------------------------------------------------------------------------------------------


def mark_not_used(mark: str, why: str) -> Warning:
    """Warn of a marked stage that cannot be used."""
    return Warning(
        "mark-not-used",
        f'`@bottleneck.stage("{mark}")` is not used: {why}. Its work is part of the stage around it.',
    )


def mark_output_changed(mark: str, copy_s: float) -> Warning:
    """Warn of a marked stage whose output later code changes; `copy_s` is the time of a copy."""
    return Warning(
        "mark-output-changed",
        f'Later code changes the output of `@bottleneck.stage("{mark}")` in place, so a copy of it is served each '
        f"time. That takes {1e3 * copy_s:.2g} ms per call in the experiments that cache `{mark}`.",
    )


def mark_not_called(marks: Sequence[str]) -> Warning:
    """Warn of marked stages, by their names, that nothing called."""
    named = ", ".join(f'`"{mark}"`' for mark in marks)
    return Warning(
        "mark-not-called",
        f"Marked, but never recorded: {named}. Neither the dataset nor the collate function called it "
        "while batches were recorded.",
    )


def mark_outside_loader(mark: str) -> Warning:
    """Warn of a marked stage that the main process runs."""
    return Warning(
        "mark-outside-loader",
        f'`@bottleneck.stage("{mark}")` marks code of the train step or of the copy to the device, which runs in '
        "the main process: only what the loader runs can be cut. Its time is part of `compute` or `copy`.",
    )


# --- recordings that cannot be served -----------------------------------------------------------------------


def recording_changed(recorded: Sequence[str]) -> Warning:
    """Warn of recorded data that changed while it was served."""
    return Warning(
        "recording-changed",
        f"Recorded {', '.join(recorded)} changed in place while they were served repeatedly, and the times of "
        "the stages may have changed with them. Let the code that works in place work on a copy, and measure "
        "again.",
    )


def items_served_again(experiments: Sequence[str], why: str) -> Warning:
    """Warn of experiments that failed on the recordings of other items; `why` is a sentence."""
    return Warning(
        "items-served-again",
        f"`{'`, `'.join(experiments)}`: {why} So they are served repeatedly to the items that they were recorded of; "
        "the data of these comes from the page cache, as the job's own does.",
    )


def experiment_lost(experiment: str, why: str) -> Warning:
    """Warn of an experiment that failed on recorded data; `why` is a sentence."""
    return Warning("experiment-lost", f"`{experiment}` could not be measured: {why}")
