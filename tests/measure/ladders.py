"""Ladders of jobs that are described by what can be measured of them."""

from bottleneck.loader.recording.plan import Plan
from bottleneck.measure.ladder import Capabilities, build_ladder

_OF_THE_JOB = ("can_skip_batches", "more_room", "unrecorded")


def make_ladder(*, copies=False, hands_over=True, **options):
    """The ladder of a job; options are fields of `Capabilities`, or else of the plan."""
    of_the_job = {name: options.pop(name) for name in _OF_THE_JOB if name in options}
    return build_ladder(Capabilities(copies, hands_over, Plan("template", **options), **of_the_job))
