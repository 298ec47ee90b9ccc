"""Conclusions from the stacks of a running job: pure functions of samples, without torch and numpy."""
