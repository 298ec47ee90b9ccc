"""Where the locks find what they go through: after a move, only this file changes."""

from bottleneck.analysis.analyse import analyse
from bottleneck.results.codec import from_json, to_json, to_measurement

__all__ = ["analyse", "from_json", "to_json", "to_measurement"]
