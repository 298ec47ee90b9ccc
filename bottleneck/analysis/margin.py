"""The margins of findings; a module of its own, so that reports need no numpy for them."""

MARGIN = 1.03
"""Ratio of times below which a difference is not worth acting on, however surely it was measured."""

LOSS_WORTH_TOUCHING = 0.05
"""A job that surely loses more than this is input bound."""
