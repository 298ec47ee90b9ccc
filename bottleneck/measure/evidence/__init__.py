"""Facts about the job that advice rests on: batch, dataset, reads, waits, source."""
