"""Putting things back step by step: no step is lost to an error or to an interrupt in another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from bottleneck.measure.interrupts import interrupts_deferred

_ATTEMPTS = 3
_SENTENCES = 20
_REASON_CHARACTERS = 200


class Snapshot(Protocol):
    """One thing as it was. Restoring is idempotent, so that an interrupted step can be repeated."""

    @property
    def what(self) -> str:
        """The thing, for a sentence: 'model.fc.weight'."""
        ...

    def restore(self) -> None:
        """Put the thing back. Raises whatever stops it; the other steps go on."""
        ...


class State:
    """What a getter returns and a setter takes."""

    def __init__(self, what: str, get: Callable[[], Any], put: Callable[[Any], object]) -> None:
        self.what = what
        self._get, self._put = get, put
        self._saved = get()

    def restore(self) -> None:
        self._put(self._saved)


class Setting(State):
    """A state that is written only when it differs, as some setters warn."""

    def restore(self) -> None:
        try:
            if self._get() == self._saved:
                return
        except RuntimeError:  # refused beside a newer flag that the body has set
            pass
        super().restore()


class Notes:
    """Sentences about what could not be kept or put back; failures of one kind share a sentence."""

    def __init__(self) -> None:
        self._remarks: dict[str, None] = {}
        self._failures: dict[tuple[str, str], list[str]] = {}

    def add(self, sentence: str) -> None:
        """Keep a sentence, once."""
        self._remarks[sentence] = None

    def add_failure(self, failure: str, what: str, error: BaseException) -> None:
        """Say that something failed.

        Args:
            failure: What failed: 'could not be put back'.
            what: The thing.
            error: Why.
        """
        reason = str(error).strip().split("\n", maxsplit=1)[0][:_REASON_CHARACTERS]
        cause = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
        self._failures.setdefault((failure, cause), []).append(what)

    @property
    def sentences(self) -> list[str]:
        """All of it, at most twenty sentences."""
        found = list(self._remarks)
        for (failure, cause), things in self._failures.items():
            others = f" and {len(things) - 1} more like it" if len(things) > 1 else ""
            found.append(f"{things[0]}{others} {failure} ({cause}).")
        return found[:_SENTENCES]


class Restoration:
    """Restores all of some snapshots, in their order, whatever happens in between."""

    def __init__(self, snapshots: Sequence[Snapshot], notes: Notes) -> None:
        self._snapshots = snapshots
        self._notes = notes
        self._done = False

    def run(self) -> None:
        """Restore everything; at once finished when an earlier call was.

        Raises:
            BaseException: An interrupt that arrived meanwhile, after everything is back.
        """
        if self._done:
            return
        interrupt: BaseException | None = None
        with interrupts_deferred():
            for snapshot in self._snapshots:
                interrupt = self._restore(snapshot) or interrupt
            self._done = True
            self._snapshots = ()  # the saved copies are as large as the model
        if interrupt is not None:
            raise interrupt

    def _restore(self, snapshot: Snapshot) -> BaseException | None:
        interrupt: BaseException | None = None
        for _ in range(_ATTEMPTS):
            try:
                snapshot.restore()
            except Exception as error:  # noqa: BLE001 - one thing that cannot be put back must not keep the rest
                self._notes.add_failure("could not be put back as it was", snapshot.what, error)
                return interrupt
            except BaseException as error:  # noqa: BLE001 - raised again when everything is back
                interrupt = error
            else:
                return interrupt
        return interrupt
