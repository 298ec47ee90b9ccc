"""Measure: rounds, blocks and stopping; the device, the clock and the evidence."""
