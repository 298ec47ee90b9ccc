"""Plan of the machine that a job needs, by its measured costs."""
