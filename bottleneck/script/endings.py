"""Reasons for the early end of a script that is measured."""

from __future__ import annotations

from typing import Any

from bottleneck.errors import MeasurementError
from bottleneck.job.users_code import users_traceback
from bottleneck.measure.explain_errors import one_line
from bottleneck.script.losses import loss_at_end


def early_end(error: BaseException | None, last_loss: Any) -> BaseException:
    """Return the reason why a script ended before its measurement did.

    Args:
        error: Its exception; None: it ran to its end.
        last_loss: The loss of its last backward pass; None: unknown.
    """
    if isinstance(error, KeyboardInterrupt | MeasurementError):
        return error
    if error is not None and not isinstance(error, SystemExit):
        return _raised(
            error,
            "The script raised while it was measured",
            "If it also raises without bottleneck, fix that first. A loop that counts the batches of its epoch may "
            "fail only here, because the epoch goes on: give it a longer epoch, or a shorter --budget.",
        )
    loss = loss_at_end(error, last_loss)
    if loss is None:
        return MeasurementError(
            "The script ended before the measurement did.", "Train for longer, or give a smaller --budget."
        )
    return MeasurementError(
        f"The script ended itself while it was measured, at a loss that is not finite ({loss}).",
        "The diagnosis trains on few batches, so it may be of its making: see whether the loss is finite without "
        "it, and if it is, diagnose with a smaller learning rate.",
    )


def raised_before(error: BaseException) -> MeasurementError:
    """Return the reason for a script that raised an exception before it was measured."""
    return _raised(
        error, "The script raised before it was measured", "It would without bottleneck, too: fix that first."
    )


def _raised(error: BaseException, what: str, hint: str) -> MeasurementError:
    return MeasurementError(f"{what}: {one_line(error)}", hint, users_traceback(error))
