"""Ladders of jobs that are described by what can be measured of them, and loaders that do nothing."""

from bottleneck.loader.recording.plan import Plan
from bottleneck.measure.ladder import Capabilities, build_ladder

_OF_THE_JOB = ("can_skip_batches", "more_room", "unrecorded", "collates")


def make_ladder(*, copies=False, hands_over=True, **options):
    """The ladder of a job; options are fields of `Capabilities`, or else of the plan."""
    of_the_job = {name: options.pop(name) for name in _OF_THE_JOB if name in options}
    not_copied = "" if copies else "the device is the CPU"
    return build_ladder(Capabilities(not_copied, hands_over, Plan("template", **options), **of_the_job))


class Workers:
    """A loader whose workers do in turn what a test says; `idle` of them have no share of the data."""

    iterable = False

    def __init__(self, num_workers, idle=0):
        self.num_workers, self.modes, self.taken = num_workers, [], 0
        self.busy = max(1, num_workers) - idle

    def switch_real(self, extra):
        self.modes.append(extra)

    def rest(self):
        self.modes.append(None)

    def next_batch(self):
        self.taken += 1
        return None, 4
