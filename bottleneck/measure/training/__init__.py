"""The state of the training: put back for each round, and watched for losses that are not finite."""
