"""Proof that the diagnosis is right: pipelines with a planted bottleneck, and what measuring costs."""
