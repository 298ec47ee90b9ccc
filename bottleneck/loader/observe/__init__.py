"""Watching the user's stages as they run: clocks, stacks, pixels, files."""
