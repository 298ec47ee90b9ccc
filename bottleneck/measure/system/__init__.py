"""The machine: cores, memory, limits of the container, file systems."""
