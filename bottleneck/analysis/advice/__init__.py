"""Advice on the bottlenecks that were found."""
