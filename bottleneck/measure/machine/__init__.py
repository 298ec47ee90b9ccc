"""The machine and what the job uses of it: limits, the description, counters, an NVIDIA device."""
