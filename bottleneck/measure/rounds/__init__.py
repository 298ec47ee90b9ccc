"""Rounds of blocks: which experiment is visited when, for how long, and when it is enough."""
