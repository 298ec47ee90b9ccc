"""Frozen records of measurements and conclusions, their JSON, and the words of all warnings.

Standard library and msgspec only.
"""
