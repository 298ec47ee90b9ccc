"""Recordings of the user's code by the workers, and ways to serve them again."""
