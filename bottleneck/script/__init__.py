"""The whole ladder inside a training script that nobody changed."""
