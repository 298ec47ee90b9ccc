"""Observe in which stage and line the time goes while batches are made for real."""
