"""Make batches of which some stages are served from recordings; where that fails, make them for real and report it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bottleneck.loader import modes
from bottleneck.loader.record.change_watch import Change, ChangeWatch
from bottleneck.loader.record.faults import Fault
from bottleneck.loader.replay.server import Server
from bottleneck.loader.requests import Blank
from bottleneck.loader.worker.control import Control
from bottleneck.loader.worker.user_code import UserCode
from bottleneck.loader.worker.work import SKIPPED, Placeholder, Work
from bottleneck.loader.worker_errors import UserCodeError, find_failure


class Serving(Work):
    """Serves the batches of one worker.

    Args:
        user_code: The user's code.
        server: Serves what is recorded.
        watch: Notices changes of what is recorded.
        control: Where what cannot be served is reported.
        worker: The number of the worker.
        iterable: The dataset is an iterable one.
    """

    def __init__(
        self, user_code: UserCode, server: Server, watch: ChangeWatch, control: Control, worker: int, *, iterable: bool
    ) -> None:
        self._user_code, self._server, self._watch = user_code, server, watch
        self._control, self._worker, self._iterable = control, worker, iterable
        self._faults: list[Fault | Change] = []
        self._request: Any = None
        """What the samples of the present batch were asked for with; None for a blank."""
        self.mode = modes.ALL
        """The stages that work for real."""

    def look_for_changes(self, *, whole: bool) -> bool:
        """Report what has changed of what was served in the present mode, and serve it no more."""
        changes = self._watch.look(self.mode, whole=whole)
        if changes:
            self._server.forget_order()
            self._report(changes)
        return bool(changes)

    def fetch(self, request: Any) -> Any:
        """Return the samples that are asked for, or recorded ones."""
        mode, size = self.mode, len(request) if self._user_code.batched else 1
        self._request = None if isinstance(request, Blank) else request
        if self._request is not None and self._server.makes_samples_for_real(mode):
            return self._user_code.fetch(request)
        try:
            return self._server.samples(mode, size, self._request)
        except UserCodeError as error:
            return self._make_instead(error)

    def next_items(self) -> list[Any]:
        """Return the next item of a stream, or the samples of a recorded batch."""
        mode, batched = self.mode, self._user_code.batched
        if mode & modes.LOAD:
            return [self._next_item(mode)]
        if not mode & (modes.WITHIN_SAMPLE | modes.COLLATE):
            return [SKIPPED]
        try:
            served = self._server.samples(mode, None if batched else 1, None)
        except UserCodeError as error:
            return [self._make_instead(error)]
        return served if batched else [served]

    def _next_item(self, mode: int) -> Any:
        if self._server.makes_samples_for_real(mode) or not self._server.has_parts:
            return self._user_code.next_item()
        try:
            return self._server.stream_item(mode)
        except UserCodeError as error:
            return self._make_instead(error)

    def collate(self, samples: Any) -> Any:
        """Return a recorded batch, or collate samples with some of the marked stages inside served."""
        mode, server = self.mode, self._server
        if not mode & modes.COLLATE:
            return self.collate_placeholder(samples)
        try:
            return self._user_code.collate(samples) if server.collates_for_real(mode) else server.collate(mode, samples)
        except UserCodeError as error:
            size = len(samples) if self._user_code.batched else None
            return self._user_code.collate(self._make_instead(error, size))

    def collate_placeholder(self, samples: Any) -> Any:
        """Return a recorded batch; of the wanted size if there is one."""
        return self._server.collated(samples.size if isinstance(samples, Placeholder) else None)

    def _make_instead(self, error: UserCodeError, size: int | None = None) -> Any:
        """Make samples for real where the job's code raised on what was served, and report that.

        What was recorded of one item may not fit to another, or may have been changed. Where the code raises as well
        when everything is real, it is the job that fails.

        Args:
            error: What was raised.
            size: Samples wanted of a stream; None: a single one, not in a list.

        Raises:
            UserCodeError: If the user's dataset raised again.
        """
        user_code = self._user_code
        if self._iterable:
            samples = user_code.next_item() if size is None else [user_code.next_item() for _ in range(size)]
        else:
            samples = user_code.fetch(self._request if self._request is not None else self._server.recorded_request())
        if self.look_for_changes(whole=True):
            return samples  # which explains the error; what is left is as it was recorded
        if self.mode not in [known.mode for known in self._faults if isinstance(known, Fault)]:
            failure = find_failure(error)
            self._report([Fault(self.mode, failure.error if failure is not None else str(error))])
        return samples

    def _report(self, faults: Iterable[Fault | Change]) -> None:
        self._faults.extend(faults)
        self._control.write_faults(self._worker, self._faults)
