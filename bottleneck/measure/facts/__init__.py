"""Facts about the job that advice rests on: batch, model, loader, reads, waits, epochs."""
