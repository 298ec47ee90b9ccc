"""Estimates with intervals, from blocks: shares, costs, gains, epochs."""
