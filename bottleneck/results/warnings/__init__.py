"""Words of all warnings: one function for each, which takes facts. Each module is a section of the reference."""
