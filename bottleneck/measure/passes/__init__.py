"""Runs after the timed rounds: traces of steps, and profiles of the workers."""
