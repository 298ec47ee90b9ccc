"""Serve data from a cache placed at any point of the user's input pipeline, without restarting its workers."""
