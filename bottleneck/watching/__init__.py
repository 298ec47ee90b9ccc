"""Watching of running jobs without experiments: their processes are sampled for some seconds."""
