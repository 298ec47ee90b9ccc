"""The preparation of blocks that begin in a state of their own, such as with files that are not in memory."""

from __future__ import annotations

from bottleneck.measure.ladder import Arm, Ladder


class Preparer:
    """Prepares the blocks of arms with a `preparation`; this base is for a job without such arms, and does nothing."""

    def prepare_for(self, arm: Arm) -> None:
        """Make the state in which a block of an arm begins: its preparation, or else that of the job itself.

        To be called before each block in which the loader works.
        """

    def limit(self, batches: int) -> int:
        """Return the number of batches that a prepared block may have, of those wanted."""
        return batches

    def end_block(self) -> None:
        """Finish a prepared block."""

    def restore(self) -> None:
        """Make the state of the job itself, once everything is measured."""

    def left_of(self, ladder: Ladder) -> Ladder:
        """Return the ladder without arms that could not be prepared; to be called after each visit."""
        return ladder
