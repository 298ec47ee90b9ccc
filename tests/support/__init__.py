"""Helpers for tests of several folders, imported by their full names: `tests.support.clock`."""
