"""Leaving the job as it was found: model, optimizer, loader, dataset, generators and process."""
