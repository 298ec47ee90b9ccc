"""The machine and its use by the job: limits, the description, counters, an NVIDIA device."""
