"""Workers tried for real on a job that has none."""
