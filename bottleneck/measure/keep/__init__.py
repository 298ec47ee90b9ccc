"""Restoring the job to its original state: model, optimizer, loader, dataset, generators and process."""
