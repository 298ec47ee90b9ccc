"""Frozen records of what was measured and concluded, and their JSON. Standard library only."""
