"""Frozen records of measurements and conclusions, and their JSON. Standard library and msgspec only."""
