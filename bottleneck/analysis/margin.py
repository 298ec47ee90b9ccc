"""The margin of every finding; a module of its own, so that reports need no numpy for it."""

MARGIN = 1.03
"""Ratio of times below which a difference is not worth acting on, however surely it was measured."""
