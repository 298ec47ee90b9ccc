"""Passes after the rounds: traces of steps, profiles of workers, the model."""
