"""What machine a job needs, by its measured costs."""
