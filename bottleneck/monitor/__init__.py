"""Monitoring that stays on for a whole run: waits, the worst batches and the events of a job, as lines of JSON."""
