"""Rounds of blocks: the order and lengths of visits to the experiments, and when to stop."""
