"""Checks of a job: its first batch, in a process of its own."""
